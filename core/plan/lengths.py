"""Questions to the lengths of a sample of rows, answered from one sorting: a plan is made at every keystroke."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of rows, shortest first; never empty."""

    ordered: tuple[int, ...]
    sums: tuple[int, ...]
    """sums[i] is that of the first i + 1."""

    @property
    def longest(self) -> int:
        return self.ordered[-1]

    def quantile(self, numerator: int, denominator: int) -> int:
        """The length that numerator / denominator of the rows keep to."""
        return self.ordered[min(len(self.ordered) - 1, len(self.ordered) * numerator // denominator)]

    def share_above(self, limit: int) -> float:
        return 1 - bisect_right(self.ordered, limit) / len(self.ordered)

    def mean_up_to(self, limit: int) -> float:
        """The mean of rows that are cut at `limit`."""
        whole = bisect_right(self.ordered, limit)
        total = (self.sums[whole - 1] if whole else 0) + (len(self.ordered) - whole) * limit
        return total / len(self.ordered)


@lru_cache(maxsize=32)
def lengths_of(rows: tuple[int, ...]) -> Lengths | None:
    """None for no rows."""
    ordered = tuple(sorted(rows))
    return Lengths(ordered, tuple(accumulate(ordered))) if ordered else None
