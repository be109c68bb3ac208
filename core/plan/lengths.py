"""Questions to the lengths of a sample of rows, answered from one sorting: a plan is made at every keystroke."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.padding import LengthCounts, Padding, padding_of, rounded_counts


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of rows, shortest first; never empty."""

    ordered: tuple[int, ...]
    sums: tuple[int, ...]
    """sums[i] is that of the first i + 1."""
    counts: LengthCounts

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

    def usual_longest(self, rows: int, limit: int, multiple: int = 1) -> int:
        """The expected longest of so many rows that are cut at `limit`, rounded up: what a micro-batch is padded to."""
        return max(1, round(_expected_longest(rounded_counts(self.counts, multiple), rows, limit)))


@lru_cache(maxsize=64)
def _expected_longest(counts: LengthCounts, rows: int, limit: int) -> float:
    return counts.expected_longest(rows, limit)


@lru_cache(maxsize=32)
def lengths_of(rows: tuple[int, ...]) -> Lengths | None:
    """None for no rows."""
    ordered = tuple(sorted(rows))
    return Lengths(ordered, tuple(accumulate(ordered)), LengthCounts.of(ordered)) if ordered else None


def mean_length(data: DataSummary | None, limit: int, *, joined: bool) -> float | None:
    """Real tokens of one sequence on this data: the mean of rows cut at `limit`, all of it where texts are joined.

    None where no row was seen.
    """
    lengths = lengths_of(data.lengths) if data is not None else None
    if lengths is None:
        return None
    return float(limit) if joined else lengths.mean_up_to(limit)


def step_padding(
    data: DataSummary | None, limit: int, micro_batch: int, groups: int, *, joined: bool, multiple: int = 1
) -> Padding | None:
    """Tokens of an optimizer step of `groups` micro-batches, over all processes, each padded to a `multiple`; None where
    no row was seen."""
    lengths = lengths_of(data.lengths) if data is not None else None
    if lengths is None:
        return None
    if joined:
        whole = float(micro_batch * groups * limit)
        return Padding(whole, whole, whole)
    return padding_of(lengths.counts, limit, micro_batch, groups, multiple)
