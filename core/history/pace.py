"""The steps of a run or a probe as one median with its 10 and 90 %."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of steps: `count` of them."""

    count: int
    median_s: float
    low_s: float
    high_s: float


def steps_of(timed: Sequence[tuple[float, int]]) -> Steps | None:
    """From (mean seconds of a step, how many steps it is the mean of); None without any."""
    known = sorted((seconds, count) for seconds, count in timed if seconds > 0 and count > 0)
    total = sum(count for _, count in known)
    if not total:
        return None
    return Steps(total, _quantile(known, total, 0.5), _quantile(known, total, 0.1), _quantile(known, total, 0.9))


def _quantile(known: Sequence[tuple[float, int]], total: int, share: float) -> float:
    reached = 0
    for seconds, count in known:
        reached += count
        if reached >= share * total:
            return seconds
    return known[-1][0]
