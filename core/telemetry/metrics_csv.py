"""CsvTail: the metrics.csv of Lightning's CSVLogger: a row for each logged step, empty cells where a metric was not logged."""

from __future__ import annotations

import csv
from collections import deque
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.numbers import step_of
from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.scalars import RECENT_POINTS
from trainwiz.core.telemetry.tail import ByteTail

METRICS_CSV = "metrics.csv"
NOT_METRICS = frozenset({"", "step", "created_at"})
LONGEST_LINE_BYTES = 1024 * 1024


class CsvTail(ByteTail):
    """New scalars of the file. Rows have no time: `last_time_s` is when the file was last changed, and `times` says
    for the last row of each look that came to the end of the file when it was written. Many rows come at once.

    The logger writes the file anew when a new metric appears; then `resets` counts and all is read again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._forget()

    def _forget(self) -> None:
        self.refusal: str | None = None
        self.first_time_s: float | None = None
        self.last_time_s: float | None = None
        self._names: list[str] | None = None
        self._half = b""
        self._rows = 0
        self.times: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)

    def _restart(self) -> None:
        super()._restart()
        self._forget()

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
