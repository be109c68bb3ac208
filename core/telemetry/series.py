"""Series: a metric over its steps in bounded memory, and a line through it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add, truediv


def smooth(means: Sequence[float | None], reach: int) -> tuple[float | None, ...]:
    """Nearly a Gaussian average over columns: three passes of a running mean over `reach` columns on
    each side. Gaps between the first and the last known value are filled, so that the line stays one
    line. Cost follows the number of columns, not the reach.
    """
    line = fill_between(means)
    known = [index for index, value in enumerate(line) if value is not None]
    if not known:
        return line
    first, last = known[0], known[-1]
    values = [value for value in line[first : last + 1] if value is not None]
    for _ in range(3):
        values = _running_mean(values, reach)
    return (*line[:first], *values, *line[last + 1 :])


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


def fill_between(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Straight lines over the None between known values; None before the first and after the last stays."""
    result = list(values)
    previous: int | None = None
    for index, value in enumerate(values):
        if value is None:
            continue
        if previous is not None and index > previous + 1:
            before = values[previous]
            assert before is not None
            for place in range(previous + 1, index):
                result[place] = before + (value - before) * (place - previous) / (index - previous)
        previous = index
    return tuple(result)


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
        lows, highs = list(self.lows[inside]), self.highs[inside]
        if positive:
            lows = [low for low in lows if low > 0]
        if not highs or (positive and max(highs) <= 0):
            return None
        return min(lows, default=max(highs)), max(highs)

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
    first finite value, `last` the newest one, finite or not.
    """

    def __init__(self) -> None:
        self.count = 0
        self.non_finite = 0
        self.whole = True
        self.first: float | None = None
        self.last: float | None = None
        self.last_step: float | None = None
        self.minimum: float | None = None
        self.maximum: float | None = None
        self._non_finite_steps: list[float] = []
        self._group_points = 1
        self._steps, self._lows, self._highs, self._sums, self._counts = self._all = [array("d") for _ in range(5)]
        self._last_finite_step: float | None = None
        self._curve: Curve | None = None

    def add(self, step: float, value: float) -> None:
        """Append one point. A step before the newest one drops what it goes back over: the run went on from there."""
        if self.last_step is not None and step < self.last_step:
            self.rewind(step, keep_equal=False)
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
        # No min() nor loops here: an attach adds a million values.
        if self.minimum is None or self.maximum is None:
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

    def rewind(self, step: float, *, keep_equal: bool = True) -> None:
        """Forget what lies after `step`; exact among single points, else within one group."""
        self._curve = None
        find = bisect_right if keep_equal else bisect_left
        keep = find(self._steps, step)
        for column in self._all:
            del column[keep:]
        del self._non_finite_steps[find(self._non_finite_steps, step) :]
        self.non_finite = len(self._non_finite_steps)
        self.count = self.non_finite + int(sum(self._counts))
        self.minimum, self.maximum = min(self._lows, default=None), max(self._highs, default=None)
        self.last_step = self._last_finite_step = self._steps[-1] if self._steps else None
        self.last = self._sums[-1] / self._counts[-1] if self._steps else None
        if not self._steps:
            self.first = None
        bad_step = self._non_finite_steps[-1] if self._non_finite_steps else None
        if bad_step is not None and (self.last_step is None or bad_step > self.last_step):
            self.last_step, self.last = bad_step, math.nan

    @property
    def non_finite_steps(self) -> tuple[float, ...]:
        """The first MOST_NON_FINITE_STEPS steps whose value is not finite."""
        return tuple(self._non_finite_steps)

    def newest(self, count: int) -> tuple[float, ...]:
        """The newest finite values, oldest first; of a long series the means of groups."""
        return tuple(map(truediv, self._sums[-count:], self._counts[-count:]))

    def curve(self) -> Curve:
        """A frozen copy, made by copying memory; the same object while nothing is added."""
        if self._curve is None:
            steps, lows, highs, sums, counts = (column[:] for column in self._all)
            self._curve = Curve(steps, lows, highs, sums, counts, self._last_finite_step, self.non_finite_steps)
        return self._curve

    def _merge(self) -> None:
        """Every two groups become one."""
        self._steps[:] = self._steps[::2]
        for column, merge in ((self._lows, min), (self._highs, max), (self._sums, add), (self._counts, add)):
            column[:] = array("d", map(merge, column[::2], column[1::2]))
        self._group_points *= 2


EMPTY_CURVE = Series().curve()
