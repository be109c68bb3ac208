"""The metrics of a training: each over its steps in bounded memory, a line through it, its summary; pace and trend."""

from __future__ import annotations

import math
import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.text import FARTHEST_STEP, number, numbers_finite

if TYPE_CHECKING:
    from trainwiz.core.telemetry.event_file import Scalar

PACE_ROWS = 50
WARM_ROWS = 2
PACE_MARGIN = 1.1
"""Beyond the planned range by which a step is called slower or faster."""
MOST_NAMES = 1_000
"""A file with more names than this is not a metrics file; further names are left out."""

FASTEST = 1e12
"""Seconds a step or tokens a second beyond which, or below 0, a file holds no pace."""

NOT_METRICS = frozenset({"step", "epoch", "time_s", "resumed_from"})


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """`count` includes non-finite values; `minimum` and `maximum` are over finite ones."""

    last: float | None
    last_step: float | None
    count: int
    minimum: float | None
    maximum: float | None
    non_finite: int

    def to_json(self) -> dict[str, Any]:
        """A non-finite last value is null, as JSON has no number for it; `non_finite` tells of it."""
        last, least, most = (numbers_finite(value) for value in (self.last, self.minimum, self.maximum))
        return {"last": last, "count": self.count, "min": least, "max": most, "non_finite": self.non_finite}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the run goes, over the last PACE_ROWS logged steps."""

    step_s: float | None
    """Median seconds of one optimizer step, as the training measured it."""
    wall_step_s: float | None
    """Seconds a step by the wall clock, evaluations and saving included."""
    tokens_per_s: float | None
    """Padding included."""
    real_tokens_per_s: float | None
    data_wait: float | None
    """Share of a step spent waiting for data, 0 to 1."""
    settled: bool = True
    """More than the first WARM_ROWS were logged: their steps load kernels and fill the allocator."""

    def against(self, low_s: float | None, high_s: float | None) -> Literal["slower", "faster", "planned"] | None:
        """A step beside what was planned for it; None where either is not known yet."""
        if not self.step_s or low_s is None or high_s is None or not self.settled:
            return None
        if self.step_s > high_s * PACE_MARGIN:
            return "slower"
        return "faster" if self.step_s < low_s * (2 - PACE_MARGIN) else "planned"

    def left_s(self, step: float | None, max_steps: int | None) -> float | None:
        """Until the last step, at the pace of the wall clock where it is known; None where one of the facts is not."""
        step_s = self.wall_step_s or self.step_s
        if step is None or not max_steps or step_s is None:
            return None
        return max(0.0, max_steps - step) * step_s


NO_PACE = Pace(None, None, None, None, None)


# A line through a metric, and the metric over its steps.


def smooth(means: Sequence[float | None], reach: int) -> tuple[float | None, ...]:
    """Nearly a Gaussian average over columns: three passes of a running mean over `reach` columns on
    each side. Gaps between the first and the last known value are filled, so that the line stays one
    line. Cost follows the number of columns, not the reach.
    """
    known = [(place, value) for place, value in enumerate(means) if value is not None]
    if not known:
        return tuple(means)
    line = [
        before + (after - before) * step / (right - left)
        for (left, before), (right, after) in pairwise(known)
        for step in range(right - left)
    ]
    line.append(known[-1][1])
    for _ in range(3):
        line = _running_mean(line, reach)
    return (*[None] * known[0][0], *line, *[None] * (len(means) - 1 - known[-1][0]))


def _running_mean(values: list[float], reach: int) -> list[float]:
    # At the left edge the window shrinks evenly, so that a steep start keeps its height; at the
    # right edge it only loses its future, so that the newest value is not the noise of one point.
    sums = [0.0, *accumulate(values)]
    count = len(values)
    result = []
    for index in range(count):
        left = min(reach, index)
        right = min(left, count - 1 - index)
        start, stop = index - left, index + right + 1
        result.append((sums[stop] - sums[start]) / (stop - start))
    return result


MOST_GROUPS = 32_768
"""Where as many points, or groups of them, are kept, every two become one."""
MOST_NON_FINITE_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class Columns:
    """A curve cut into `len(low)` equal parts of the step axis; None where a part holds no point."""

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    mean: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A frozen copy of a series, for drawing: single points, or of a long series groups of as many points each, with
    their first step, lowest, highest and summed value. Steps never decrease."""

    steps: array[float]
    lows: array[float]
    highs: array[float]
    sums: array[float]
    counts: array[float]
    """Points of each group."""
    last_step: float | None
    """The last step that has a finite value."""
    non_finite_steps: tuple[float, ...]

    def __len__(self) -> int:
        return int(sum(self.counts))

    @property
    def first_step(self) -> float | None:
        """The first step that has a finite value."""
        return self.steps[0] if self.steps else None

    def extremes(self, first: float, last: float, *, positive: bool = False) -> tuple[float, float] | None:
        """The lowest and the highest value in [first, last], of values above 0 only where `positive`."""
        inside = slice(bisect_left(self.steps, first), bisect_right(self.steps, last))
        lows: Sequence[float] = self.lows[inside]
        highs: Sequence[float] = self.highs[inside]
        if positive:
            lows, highs = ([value for value in values if value > 0] for values in (lows, highs))
        return (min(lows, default=max(highs)), max(highs)) if highs else None

    def columns(self, first: float, last: float, count: int) -> Columns:
        """Lowest, highest and mean value in each of `count` equal parts of [first, last]."""
        edges = [bisect_left(self.steps, first + (last - first) * column / count) for column in range(count)]
        parts: list[tuple[float | None, float | None, float | None]] = []
        for start, stop in pairwise([*edges, bisect_right(self.steps, last)]):
            if start < stop:
                mean = sum(self.sums[start:stop]) / sum(self.counts[start:stop])
                parts.append((min(self.lows[start:stop]), max(self.highs[start:stop]), mean))
            else:
                parts.append((None, None, None))
        return Columns(*zip(*parts, strict=True))


class Series:
    """One metric. Adding a point costs the same however many there are, and memory is bounded.

    `count` includes non-finite values; `minimum` and `maximum` are over finite ones; `first` is the
    first finite value, `last` the newest one, finite or not. Where a writer goes back to an earlier step (two
    launches into one folder, a resume), the newest pass counts.
    """

    def __init__(self) -> None:
        self.count = 0
        self.non_finite = 0
        self.first: float | None = None
        self.last: float | None = None
        self.last_step: float | None = None
        self.minimum: float | None = None
        self.maximum: float | None = None
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=PACE_ROWS)
        """Step, Unix time and value of the newest points, all of one session."""
        self._session: object = None
        self._non_finite_steps: list[float] = []
        self._group_points = 1
        self._steps, self._lows, self._highs, self._sums, self._counts = self._all = [array("d") for _ in range(5)]
        self._last_finite_step: float | None = None
        self._curve: Curve | None = None

    def add(self, step: float, value: float, time_s: float = 0.0, session: object = None) -> None:
        """Append one point. A step before the newest one drops what it goes back over: the run went on from there."""
        if self.last_step is not None and step < self.last_step:
            self.rewind(step)
        if session is not self._session:
            # The pause between two launches is not the time of a step.
            self._session = session
            self.recent.clear()
        self.recent.append((step, time_s, value))
        self._curve = None
        self.count += 1
        self.last = value
        self.last_step = step
        if not math.isfinite(value):
            self.non_finite += 1
            if len(self._non_finite_steps) < MOST_NON_FINITE_STEPS:
                self._non_finite_steps.append(step)
            return
        self._last_finite_step = step
        # Without min() and loops: opening a long run adds a million values.
        if self.first is None or self.minimum is None or self.maximum is None:
            self.first = self.minimum = self.maximum = value
        elif value < self.minimum:
            self.minimum = value
        elif value > self.maximum:
            self.maximum = value
        if self._group_points > 1 and self._counts and self._counts[-1] < self._group_points:
            if value < self._lows[-1]:
                self._lows[-1] = value
            elif value > self._highs[-1]:
                self._highs[-1] = value
            self._sums[-1] += value
            self._counts[-1] += 1
            return
        self._steps.append(step)
        self._lows.append(value)
        self._highs.append(value)
        self._sums.append(value)
        self._counts.append(1)
        if len(self._steps) >= MOST_GROUPS:
            self._merge()

    def rewind(self, step: float) -> None:
        """Forget `step` and what lies after it; exact among single points, else within one group."""
        self._curve = None
        self.recent.clear()
        keep = bisect_left(self._steps, step)
        for column in self._all:
            del column[keep:]
        del self._non_finite_steps[bisect_left(self._non_finite_steps, step) :]
        self.non_finite = len(self._non_finite_steps)
        self.count = self.non_finite + int(sum(self._counts))
        self.minimum, self.maximum = min(self._lows, default=None), max(self._highs, default=None)
        self.first = self.first if self._steps else None
        newest = [(self._steps[-1], self._sums[-1] / self._counts[-1])] if self._steps else []
        newest += [(self._non_finite_steps[-1], math.nan)] if self._non_finite_steps else []
        self.last_step, self.last = max(newest, key=lambda point: point[0], default=(None, None))
        self._last_finite_step = self._steps[-1] if self._steps else None

    @property
    def non_finite_steps(self) -> tuple[float, ...]:
        """The first MOST_NON_FINITE_STEPS steps whose value is not finite."""
        return tuple(self._non_finite_steps)

    def curve(self) -> Curve:
        """A frozen copy, made by copying memory; the same object while nothing is added."""
        if self._curve is None:
            steps, lows, highs, sums, counts = (column[:] for column in self._all)
            self._curve = Curve(steps, lows, highs, sums, counts, self._last_finite_step, self.non_finite_steps)
        return self._curve

    def summary(self) -> MetricSummary:
        return MetricSummary(self.last, self.last_step, self.count, self.minimum, self.maximum, self.non_finite)

    def _merge(self) -> None:
        """Every two groups become one."""
        self._steps[:] = self._steps[::2]
        for column, merge in ((self._lows, min), (self._highs, max), (self._sums, add), (self._counts, add)):
            column[:] = array("d", map(merge, column[::2], column[1::2]))
        self._group_points *= 2


NO_SERIES = Series()
EMPTY_CURVE = NO_SERIES.curve()


def last_step(series: Iterable[Series]) -> int | None:
    """The highest last step of any."""
    return max((int(one.last_step) for one in series if one.last_step is not None), default=None)


class Scalars:
    """Series by their names, in the order of first appearance; at most MOST_NAMES."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def named(self, name: str) -> Series:
        """The series, made where it has not appeared; one that is not kept where there are too many."""
        known = self.series.get(name)
        if known is None:
            known = Series()
            if len(self.series) < MOST_NAMES:
                self.series[name] = known
        return known

    def add_all(self, scalars: Iterable[Scalar], *, session: object = None) -> None:
        """`session` is another object for each launch."""
        for tag, step, value, time_s in scalars:
            self.named(tag).add(step, value, time_s, session)

    def purge(self, step: float) -> None:
        """Forget `step` and all later ones: the writer starts again there."""
        for series in self.series.values():
            series.rewind(step)
        self.series = {name: series for name, series in self.series.items() if series.count}

    @property
    def step(self) -> int | None:
        return last_step(self.series.values())


class Metrics:
    """Series of every numeric key of metrics.jsonl. `add_rows` takes rows in file order; a row that holds
    `resumed_from` says that the run went on from that step, and what lies after it is forgotten."""

    def __init__(self) -> None:
        self._scalars = Scalars()
        self.step: float | None = None
        self.epoch: float | None = None
        self.time_s: float | None = None

    @property
    def series(self) -> Mapping[str, Series]:
        return self._scalars.series

    def of(self, name: str) -> Series:
        """Empty for a name that has not appeared."""
        return self.series.get(name, NO_SERIES)

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.time_s = numbers_finite(row.get("time_s"), self.time_s)
        resumed_from = number(row.get("resumed_from"))
        if resumed_from is not None and -FARTHEST_STEP < resumed_from < FARTHEST_STEP:
            self._rewind(resumed_from)
            return
        step = number(row.get("step"))
        if step is None or not -FARTHEST_STEP < step < FARTHEST_STEP:
            step = self.step if self.step is not None else 0.0
        if self.step is not None and step < self.step:
            self._rewind(step - 1)
        self.step = step
        self.epoch = numbers_finite(row.get("epoch"), self.epoch)
        for name, raw in row.items():
            if name not in NOT_METRICS and (value := number(raw)) is not None:
                self._scalars.named(name).add(step, value, self.time_s or 0.0)

    def _rewind(self, step: float) -> None:
        self._scalars.purge(math.nextafter(step, math.inf))
        self.step = step

    def summaries(self) -> dict[str, MetricSummary]:
        """By name, in the order of first appearance."""
        return {name: series.summary() for name, series in self.series.items()}

    def pace(self) -> Pace:
        rows = self.of("loss").recent
        step_s, data_wait_s = (self._median(name, WARM_ROWS) for name in ("step_s", "data_wait_s"))
        return Pace(
            step_s=step_s,
            wall_step_s=wall_step_s(rows),
            tokens_per_s=self._median("tokens_per_s", -10),
            real_tokens_per_s=self._median("real_tokens_per_s", -10),
            data_wait=min(1.0, data_wait_s / step_s) if data_wait_s is not None and step_s else None,
            settled=len(rows) > WARM_ROWS,
        )

    def _median(self, name: str, start: int) -> float | None:
        """Of the newest values from `start` on, and where there are not so many of the newest one."""
        values = [value for *_, value in self.of(name).recent]
        known = [value for value in values[start:] or values[-1:] if 0 <= value < FASTEST]
        return statistics.median_high(known) if known else None

    def pause_s(self) -> float | None:
        """Median seconds between two logged losses; None while there are fewer than four of them."""
        recent = self.of("loss").recent
        pauses = [later - earlier for (_, earlier, _), (_, later, _) in pairwise(recent) if later >= earlier]
        return statistics.median(pauses) if len(pauses) >= 3 else None


def wall_step_s(recent: Sequence[tuple[float, ...]]) -> float | None:
    """Seconds a step, by step and time of the newest points."""
    if len(recent) < 2:
        return None
    (first, began_s, *_), (last, ended_s, *_) = recent[0], recent[-1]
    seconds = (ended_s - began_s) / (last - first) if last > first else 0.0
    return seconds if 0 < seconds < FASTEST else None


LOSSES = ("loss", "train/loss", "train_loss", "train_loss_step", "training loss", "epoch_loss", "train_loss_epoch")


def loss_name(names: Iterable[str]) -> str | None:
    """The metric that is the training loss, by its name; of several runs the first that has one."""
    names = list(names)
    for wanted in LOSSES:
        for name in names:
            if name == wanted or name.endswith(f"/{wanted}"):
                return name
    return next((name for name in names if "loss" in name.lower()), None)
