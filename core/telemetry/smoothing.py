"""The smoothed line of a curve that is cut into columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


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
