"""The cursor of a plot: what a curve says at a step, and which logged step lies beside another. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwiz.core.telemetry.series import Curve


@dataclass(frozen=True, slots=True)
class Reading:
    """The value at a logged step; NaN where it was not a number. Of long runs older steps are read in groups."""

    step: float
    value: float
    """The mean, where `points` is more than one."""
    low: float
    high: float
    points: int = 1


def read_at(curve: Curve, step: float) -> Reading | None:
    """What was logged nearest to `step`; None for a curve without values."""
    near = [_nearest(steps, step) for steps in _step_lists(curve)]
    best = min((found for found in near if found is not None), key=lambda found: abs(found - step), default=None)
    if best is None:
        return None
    if (place := _place(curve.non_finite_steps, best)) is not None:
        return Reading(best, math.nan, math.nan, math.nan)
    if (place := _place(curve.steps, best)) is not None:
        value = curve.values[place]
        return Reading(best, value, value, value)
    place = bisect_left(curve.bucket_steps, best)
    mean = curve.bucket_sums[place] / curve.bucket_points
    return Reading(best, mean, curve.bucket_lows[place], curve.bucket_highs[place], curve.bucket_points)


def step_beside(curve: Curve, step: float, by: float) -> float | None:
    """The logged step nearest to `step + by`, but beyond `step` in that direction; None at the end of the curve."""
    beyond: list[float] = []
    for steps in _step_lists(curve):
        if by > 0:
            place = bisect_right(steps, step)
            inside: Sequence[float] = steps[place : place + 1]
        else:
            place = bisect_left(steps, step)
            inside = steps[max(0, place - 1) : place]
        beyond += inside
        near = _nearest(steps, step + by)
        if near is not None and (near > step if by > 0 else near < step):
            beyond.append(near)
    return min(beyond, key=lambda found: abs(found - step - by), default=None)


def _step_lists(curve: Curve) -> Iterator[Sequence[float]]:
    yield curve.bucket_steps
    yield curve.steps
    yield curve.non_finite_steps


def _nearest(steps: Sequence[float], step: float) -> float | None:
    place = bisect_left(steps, step)
    around = steps[max(0, place - 1) : place + 1]
    return min(around, key=lambda found: abs(found - step), default=None)


def _place(steps: Sequence[float], step: float) -> int | None:
    place = bisect_left(steps, step)
    return place if place < len(steps) and steps[place] == step else None
