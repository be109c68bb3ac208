"""Scalars: the series of a run by their tags, and the tail of a CSV table of metrics."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable

from trainwiz.core.language import tr
from trainwiz.core.telemetry.event_file import RECENT_POINTS, Scalar, ScalarTail
from trainwiz.core.telemetry.metrics import MOST_NAMES
from trainwiz.core.telemetry.series import Series
from trainwiz.core.text import step_of

# Scalars: the series of one TensorBoard run, one for each tag. Tags keep steps of their own.


class TagSeries:
    """One tag. Where a writer goes back to an earlier step without saying that it starts again (two
    launches into one folder), the newest pass is shown."""

    def __init__(self) -> None:
        self.series = Series()
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)
        """Step and Unix time of the newest points, all of one session."""
        self._session: object = None

    def add(self, step: float, value: float, time_s: float, session: object = None) -> None:
        last = self.series.last_step
        if session is not self._session or (last is not None and step < last):
            # The night between two launches is no step that took long.
            self._session = session
            self.recent.clear()
        self.series.add(step, value)
        self.recent.append((step, time_s))

    def purge(self, step: float) -> None:
        """Forget `step` and all later ones: the writer starts again there."""
        self.series.rewind(step, keep_equal=False)
        self.recent.clear()


class Scalars:
    """By tag, in the order of first appearance; at most MOST_NAMES tags."""

    def __init__(self) -> None:
        self.tags: dict[str, TagSeries] = {}
        self.left_out: set[str] = set()
        """Names that came after MOST_NAMES others, at most as many."""

    def add_all(self, scalars: Iterable[Scalar], *, session: object = None) -> None:
        """`session` is another object for each launch."""
        tags = self.tags
        for tag, step, value, time_s in scalars:
            if tag is None:
                self.purge(step)
                continue
            series = tags.get(tag)
            if series is None:
                if len(tags) >= MOST_NAMES:
                    if len(self.left_out) < MOST_NAMES:
                        self.left_out.add(tag)
                    continue
                series = tags[tag] = TagSeries()
            series.add(step, value, time_s, session)

    def purge(self, step: float) -> None:
        for series in self.tags.values():
            series.purge(step)
        for tag in [tag for tag, series in self.tags.items() if not series.series.count]:
            del self.tags[tag]

    @property
    def step(self) -> int | None:
        """The highest last step of any tag."""
        steps = [tag.series.last_step for tag in self.tags.values() if tag.series.last_step is not None]
        return int(max(steps)) if steps else None

    def last(self, tag: str) -> float | None:
        series = self.tags.get(tag)
        return series.series.last if series else None


# CsvTail: the metrics.csv of Lightning's CSVLogger: a row for each logged step, empty cells where a metric was not logged.

METRICS_CSV = "metrics.csv"
NOT_METRICS = frozenset({"", "step", "created_at"})
LONGEST_LINE_BYTES = 1024 * 1024


class CsvTail(ScalarTail):
    """New scalars of the file. Rows have no time: `last_time_s` is when the file was last changed, and `times` says
    for the last row of each look that came to the end of the file when it was written. Many rows come at once.

    The logger writes the file anew when a new metric appears; then `resets` counts and all is read again.
    """

    def _forget(self) -> None:
        super()._forget()
        self._names: list[str] | None = None
        self._half = b""
        self._rows = 0

    def read_new(self) -> list[Scalar]:
        data = self.read_bytes()
        if not data or self.refusal:
            return []
        *lines, self._half = (self._half + data).split(b"\n")
        if len(self._half) > LONGEST_LINE_BYTES:
            self.refusal = tr(
                "{path} is not a table of metrics: a line has over {most} bytes.",
                path=self.path,
                most=f"{LONGEST_LINE_BYTES:,}",
            )
            return []
        try:
            rows = list(csv.reader(line.decode("utf-8", "replace").replace("\0", "") for line in lines))
        except csv.Error as error:
            self.refusal = tr("{path} is not a table of metrics: {reason}.", path=self.path, reason=error)
            return []
        scalars = [scalar for row in rows if row for scalar in self._read_row(row)]
        self._note_time(scalars)
        return scalars

    def _read_row(self, row: list[str]) -> list[Scalar]:
        if self._names is None:
            self._names = [name.strip().removeprefix("\ufeff") for name in row]
            return []
        cells = dict(zip(self._names, row, strict=False))
        self._rows += 1
        step = step_of(_number(cells.get("step", "")))
        at = self._rows - 1 if step is None else step
        return [
            (name, at, value, 0.0)
            for name, cell in cells.items()
            if name not in NOT_METRICS and (value := _number(cell)) is not None
        ]

    def _note_time(self, scalars: list[Scalar]) -> None:
        try:
            self.last_time_s = self.path.stat().st_mtime
        except OSError:
            return
        if scalars and not self.behind:
            if self.times and scalars[-1][1] < self.times[-1][0]:
                self.times.clear()
            self.times.append((scalars[-1][1], self.last_time_s))


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
