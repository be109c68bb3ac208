"""Series: a metric over its steps in bounded memory, and a line through it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add


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


RAW_POINTS = 16_384
"""The newest points are kept as they are: between this many and twice as many."""
FIRST_BUCKET_POINTS = 8
MOST_BUCKETS = 32_768
MOST_NON_FINITE_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class Columns:
    """A curve cut into `len(low)` equal parts of the step axis; None where a part holds no point."""

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    mean: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A frozen copy of a series, for drawing. Older points are buckets of several points with
    their lowest, highest and summed value; newer ones are raw. Steps never decrease."""

    bucket_points: int
    bucket_steps: array[float]
    bucket_lows: array[float]
    bucket_highs: array[float]
    bucket_sums: array[float]
    steps: array[float]
    values: array[float]
    non_finite_steps: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.bucket_steps) * self.bucket_points + len(self.steps)

    @property
    def first_step(self) -> float | None:
        """The first step that has a finite value."""
        if self.bucket_steps:
            return self.bucket_steps[0]
        return self.steps[0] if self.steps else None

    @property
    def last_step(self) -> float | None:
        if self.steps:
            return self.steps[-1]
        return self.bucket_steps[-1] if self.bucket_steps else None

    def extremes(self, first: float, last: float, *, positive: bool = False) -> tuple[float, float] | None:
        """The lowest and the highest value in [first, last], of values above 0 only where `positive`."""
        buckets = slice(bisect_left(self.bucket_steps, first), bisect_right(self.bucket_steps, last))
        values = self.values[bisect_left(self.steps, first) : bisect_right(self.steps, last)]
        lows, highs = list(self.bucket_lows[buckets] + values), self.bucket_highs[buckets] + values
        if positive:
            lows = [low for low in lows if low > 0]
        if not highs or (positive and max(highs) <= 0):
            return None
        return min(lows, default=max(highs)), max(highs)

    def columns(self, first: float, last: float, count: int) -> Columns:
        """Lowest, highest and mean value in each of `count` equal parts of [first, last]."""
        parts: list[tuple[float | None, float | None, float | None]] = []
        start_bucket, start = bisect_left(self.bucket_steps, first), bisect_left(self.steps, first)
        for column in range(count):
            is_last = column == count - 1
            edge, find = last if is_last else first + (last - first) * (column + 1) / count, bisect_left
            if is_last:
                find = bisect_right
            stop_bucket, stop = find(self.bucket_steps, edge, start_bucket), find(self.steps, edge, start)
            buckets, values = slice(start_bucket, stop_bucket), self.values[start:stop]
            lows, highs = self.bucket_lows[buckets] + values, self.bucket_highs[buckets] + values
            points = len(values) + (stop_bucket - start_bucket) * self.bucket_points
            total = sum(self.bucket_sums[buckets]) + sum(values)
            parts.append((min(lows), max(highs), total / points) if points else (None, None, None))
            start_bucket, start = stop_bucket, stop
        return Columns(*zip(*parts, strict=True))


EMPTY_CURVE = Curve(
    FIRST_BUCKET_POINTS, array("d"), array("d"), array("d"), array("d"), array("d"), array("d"), non_finite_steps=()
)


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
        self._steps: array[float] = array("d")
        self._values: array[float] = array("d")
        self._bucket_points = FIRST_BUCKET_POINTS
        self._bucket_steps: array[float] = array("d")
        self._lows: array[float] = array("d")
        self._highs: array[float] = array("d")
        self._sums: array[float] = array("d")
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
        if self.first is None:
            self.first = value
        self.minimum = value if self.minimum is None else min(self.minimum, value)
        self.maximum = value if self.maximum is None else max(self.maximum, value)
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= 2 * RAW_POINTS:
            self._compress()

    def rewind(self, step: float, *, keep_equal: bool = True) -> None:
        """Forget what lies after `step`; exact among the raw points, within one bucket before them."""
        self._curve = None
        find = bisect_right if keep_equal else bisect_left
        keep = find(self._steps, step)
        del self._steps[keep:], self._values[keep:]
        if not keep:
            keep = find(self._bucket_steps, step)
            del self._bucket_steps[keep:], self._lows[keep:], self._highs[keep:], self._sums[keep:]
        del self._non_finite_steps[find(self._non_finite_steps, step) :]
        self.non_finite = len(self._non_finite_steps)
        self.count = self.non_finite + len(self._bucket_steps) * self._bucket_points + len(self._steps)
        lows, highs = [*self._lows, *self._values], [*self._highs, *self._values]
        self.minimum, self.maximum = min(lows, default=None), max(highs, default=None)
        if not lows:
            self.first = None
        self._take_last()

    @property
    def non_finite_steps(self) -> tuple[float, ...]:
        """The first MOST_NON_FINITE_STEPS steps whose value is not finite."""
        return tuple(self._non_finite_steps)

    def newest(self, count: int) -> tuple[float, ...]:
        """The newest finite values, oldest first; `count` is below RAW_POINTS."""
        return tuple(self._values[-count:])

    def curve(self) -> Curve:
        """A frozen copy, made by copying memory; the same object while nothing is added."""
        if self._curve is None:
            buckets = self._bucket_steps[:], self._lows[:], self._highs[:], self._sums[:]
            self._curve = Curve(self._bucket_points, *buckets, self._steps[:], self._values[:], self.non_finite_steps)
        return self._curve

    def _take_last(self) -> None:
        if self._steps:
            self.last_step, self.last = self._steps[-1], self._values[-1]
        elif self._bucket_steps:
            self.last_step, self.last = self._bucket_steps[-1], self._sums[-1] / self._bucket_points
        else:
            self.last_step = self.last = None
        bad_step = self._non_finite_steps[-1] if self._non_finite_steps else None
        if bad_step is not None and (self.last_step is None or bad_step > self.last_step):
            self.last_step, self.last = bad_step, math.nan

    def _compress(self) -> None:
        """The older half of the raw points becomes buckets; too many buckets are merged two by two."""
        size = self._bucket_points
        cut = RAW_POINTS - RAW_POINTS % size
        values = self._values[:cut]
        self._bucket_steps.extend(self._steps[:cut:size])
        # Column by column, so that the loops over the points run in C.
        columns = [values[place::size] for place in range(size)]
        self._lows.extend(map(min, *columns))
        self._highs.extend(map(max, *columns))
        self._sums.extend(map(sum, zip(*columns, strict=True)))
        del self._steps[:cut], self._values[:cut]
        if len(self._bucket_steps) >= MOST_BUCKETS:
            self._merge_buckets()

    def _merge_buckets(self) -> None:
        even = len(self._bucket_steps) - len(self._bucket_steps) % 2
        first, second = slice(0, even, 2), slice(1, even, 2)
        self._bucket_steps = self._bucket_steps[first]
        self._lows = array("d", map(min, self._lows[first], self._lows[second]))
        self._highs = array("d", map(max, self._highs[first], self._highs[second]))
        self._sums = array("d", map(add, self._sums[first], self._sums[second]))
        self._bucket_points *= 2
