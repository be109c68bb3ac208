"""Padding: how many tokens a step computes when each micro-batch is padded to its own longest row, and when rows are arranged by length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import NormalDist

from trainwiz.core.data.padded_length import padded_length

NORMAL_POINTS = tuple(NormalDist().inv_cdf((place + 0.5) / 16) for place in range(16))
MOST_GROUPS = 64
"""Of so many micro-batches each is looked at when arranged by length; of more, as many spread evenly."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens of one optimizer step over all processes, in expectation."""

    real: float
    padded: float
    """Rows in random order, each micro-batch as long as its longest row."""
    arranged: float
    """The rows of the step in order of their lengths, cut into micro-batches."""

    @property
    def waste(self) -> float:
        """Share of `padded` that is padding, 0 to 1."""
        return max(0.0, 1 - self.real / self.padded)

    @property
    def arranged_waste(self) -> float:
        return max(0.0, 1 - self.real / self.arranged)


@dataclass(frozen=True, slots=True, eq=False)
class LengthCounts:
    """How many rows have which length; never empty. Equal only to itself, so that answers can be kept by it."""

    values: tuple[int, ...]
    """Each length once, shortest first."""
    ranks: tuple[int, ...]
    """Rows of at most that length."""

    @classmethod
    def of(cls, ordered: Sequence[int]) -> LengthCounts:
        """From lengths, shortest first."""
        values: list[int] = []
        ranks: list[int] = []
        for rank, length in enumerate(ordered, 1):
            if values and values[-1] == length:
                ranks[-1] = rank
            else:
                values.append(length)
                ranks.append(rank)
        return cls(tuple(values), tuple(ranks))

    @property
    def rows(self) -> int:
        return self.ranks[-1]

    def rounded(self, multiple: int) -> LengthCounts:
        """Of the same rows, each length rounded up to a multiple."""
        highest = {padded_length(value, multiple): rank for value, rank in zip(self.values, self.ranks, strict=True)}
        return LengthCounts(tuple(highest), tuple(highest.values()))

    def mean(self, limit: int) -> float:
        return self.expected_longest(1, limit)

    def expected_longest(self, rows: int, limit: int, power: int = 1) -> float:
        """Of so many rows drawn at random and cut at `limit`: the sum over t of P(longest > t), which is 1 - F(t)^rows.

        Or the mean of a `power` of the longest, by steps of t^power.
        """
        total, below, share = 0.0, 0, 0.0
        last = bisect_left(self.values, limit)
        for value, rank in zip(self.values[:last], self.ranks[:last], strict=True):
            total += (float(value) ** power - float(below) ** power) * (1 - share**rows)
            below, share = value, rank / self.rows
        beyond = limit if last < len(self.values) else below
        return total + (float(beyond) ** power - float(below) ** power) * (1 - share**rows)

    def quantile(self, share: float, limit: int) -> int:
        """The length that this share of the rows, 0 to 1, keeps to, cut at `limit`."""
        place = bisect_left(self.ranks, share * self.rows)
        return min(limit, self.values[min(place, len(self.values) - 1)])

    def expected_rank(self, rank: int, rows: int, limit: int, power: int = 1) -> float:
        """Expected length of the rank-th shortest (from 1) of so many rows, or the mean of a `power` of it.

        The rank-th of n uniform numbers is Beta(rank, n + 1 - rank), here a normal of its mean and
        deviation, taken at NORMAL_POINTS equally likely places.
        """
        if rank == rows:
            return self.expected_longest(rows, limit, power)
        mean = rank / (rows + 1)
        deviation = sqrt(mean * (1 - mean) / (rows + 2))
        shares = (min(1.0, max(0.0, mean + point * deviation)) for point in NORMAL_POINTS)
        return sum(float(self.quantile(share, limit)) ** power for share in shares) / len(NORMAL_POINTS)


@lru_cache(maxsize=32)
def rounded_counts(counts: LengthCounts, multiple: int) -> LengthCounts:
    """`counts.rounded`, kept: a plan is made at every keystroke."""
    return counts if multiple == 1 else counts.rounded(multiple)


@lru_cache(maxsize=64)
def padding_of(counts: LengthCounts, limit: int, micro_batch: int, groups: int, multiple: int = 1) -> Padding:
    """A step of `groups` micro-batches (accumulation x processes) of rows cut at `limit` tokens, each micro-batch padded
    to a `multiple`: its longest row is that of the rounded lengths, for rounding keeps their order."""
    rows, rounded = micro_batch * groups, rounded_counts(counts, multiple)
    real = rows * counts.mean(limit)
    padded = rows * rounded.expected_longest(micro_batch, limit)
    if groups == 1 or micro_batch == 1:
        return Padding(real, padded, padded)
    longest = arranged_longest(rounded, limit, micro_batch, groups)
    arranged = rows * sum(longest) / len(longest)
    return Padding(real, padded, min(padded, max(real, arranged)))


@lru_cache(maxsize=64)
def arranged_longest(
    counts: LengthCounts, limit: int, micro_batch: int, groups: int, power: int = 1
) -> tuple[float, ...]:
    """Expected lengths of micro-batches, shortest first, that the rows of a step in order are cut into, or means of a
    `power` of them; of MOST_GROUPS evenly spread ones where there are more."""
    rows = micro_batch * groups
    return tuple(counts.expected_rank(group * micro_batch, rows, limit, power) for group in _spread(groups))


def _spread(groups: int) -> list[int]:
    """Numbers from 1 to `groups`: all, or MOST_GROUPS at the middles of equal parts."""
    if groups <= MOST_GROUPS:
        return list(range(1, groups + 1))
    return [round((part + 0.5) * groups / MOST_GROUPS + 0.5) for part in range(MOST_GROUPS)]
