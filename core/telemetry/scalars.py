"""Scalars: the series of one TensorBoard run, one for each tag. Tags keep steps of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.metrics import MOST_NAMES, MetricSummary
from trainwiz.core.telemetry.series import Series

RECENT_POINTS = 50


class TagSeries:
    """One tag. Where a writer goes back to an earlier step without saying that it starts again (two
    launches into one folder), the curve shows the newest pass, while the counts and extremes are
    over everything that the files hold, as TensorBoard counts."""

    def __init__(self) -> None:
        self.series = Series()
        self.series.whole = False
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)
        """Step and Unix time of the newest points, all of one session."""
        self._session: object = None
        self._superseded = 0
        self._superseded_non_finite = 0
        self._superseded_from: float | None = None
        self._minimum: float | None = None
        self._maximum: float | None = None

    def add(self, step: float, value: float, time_s: float, session: object = None) -> None:
        if session is not self._session:
            # The night between two launches is no step that took long.
            self._session = session
            self.recent.clear()
        last = self.series.last_step
        if last is not None and step < last:
            self._supersede(step)
        self.series.add(step, value)
        self.recent.append((step, time_s))

    def purge(self, step: float) -> None:
        """Forget `step` and all later ones: the writer starts again there."""
        self.series.rewind(step, keep_equal=False)
        self.recent.clear()
        if self._superseded_from is not None and step <= self._superseded_from:
            self._superseded = self._superseded_non_finite = 0
            self._superseded_from = self._minimum = self._maximum = None

    def _supersede(self, step: float) -> None:
        series = self.series
        count, non_finite = series.count, series.non_finite
        self._minimum = _either(min, self._minimum, series.minimum)
        self._maximum = _either(max, self._maximum, series.maximum)
        series.rewind(step, keep_equal=False)
        self._superseded += count - series.count
        self._superseded_non_finite += non_finite - series.non_finite
        self._superseded_from = step if self._superseded_from is None else min(step, self._superseded_from)
        self.recent.clear()

    def summary(self) -> MetricSummary:
        series = self.series
        return MetricSummary(
            series.last,
            series.last_step,
            series.count + self._superseded,
            _either(min, self._minimum, series.minimum),
            _either(max, self._maximum, series.maximum),
            series.non_finite + self._superseded_non_finite,
        )


class Scalars:
    """By tag, in the order of first appearance; at most MOST_NAMES tags."""

    def __init__(self) -> None:
        self.tags: dict[str, TagSeries] = {}
        self.names_left_out = 0
        self._left_out: set[str] = set()

    def add_all(self, scalars: Iterable[Scalar], *, steps_back_purge: bool = False, session: object = None) -> None:
        """`steps_back_purge`: the files are of version 1, where an earlier step of a tag is a restart.
        `session` is another object for each launch."""
        tags = self.tags
        for tag, step, value, time_s in scalars:
            if tag is None:
                self.purge(step)
                continue
            series = tags.get(tag)
            if series is None:
                if len(tags) >= MOST_NAMES:
                    self._leave_out(tag)
                    continue
                series = tags[tag] = TagSeries()
            elif steps_back_purge and series.series.last_step is not None and step < series.series.last_step:
                series.purge(step)
            series.add(step, value, time_s, session)

    def purge(self, step: float) -> None:
        for series in self.tags.values():
            series.purge(step)
        for tag in [tag for tag, series in self.tags.items() if not series.summary().count]:
            del self.tags[tag]

    @property
    def step(self) -> int | None:
        """The highest last step of any tag."""
        steps = [tag.series.last_step for tag in self.tags.values() if tag.series.last_step is not None]
        return int(max(steps)) if steps else None

    def last(self, tag: str) -> float | None:
        series = self.tags.get(tag)
        return series.series.last if series else None

    def _leave_out(self, tag: str) -> None:
        if len(self._left_out) < MOST_NAMES and tag not in self._left_out:
            self._left_out.add(tag)
            self.names_left_out += 1


def _either(pick: Callable[[float, float], float], first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return pick(first, second)
