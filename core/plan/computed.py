"""What a step computes on the real lengths of its rows: the mean cost of a micro-batch, and what its order saves.

The operations of a micro-batch are a polynomial of degree 2 in the lengths that it is padded to (products grow with a
length, attention with its square, cross-attention with the product of both), so that means of lengths, squares and
products give the mean over all micro-batches exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

import numpy as np
from trainwiz.core.data.length_order import pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.flops import Cost, cost_of
from trainwiz.core.estimate.padding import LengthCounts, arranged_longest, rounded_counts
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.arranging import SHARED, UNKNOWN_ROWS, Arrangement, pairs_of
from trainwiz.core.plan.lengths import lengths_of

UNPADDED: Arrangement = "packed"
"""Each row computed at its own length."""
DRAWN: Arrangement = "drawn"


@dataclass(frozen=True, slots=True)
class Moments:
    """Means over micro-batches: of the length of inputs and of targets, of their squares and of their product."""

    source: float
    target: float
    source_squared: float
    target_squared: float
    product: float


def moments_of(work: Workload, data: DataSummary, arrangement: Arrangement, multiple: int = 1) -> Moments | None:
    """Of the micro-batches that the processes of `work` compute on rows like `data`, padded to a `multiple`; None where
    no row was seen. Processes that wait for each other count as one (see core.plan.arranging.usual_lengths)."""
    lengths = lengths_of(data.lengths)
    if lengths is None:
        return None
    together = work.world_size if work.strategy in SHARED or work.accumulation == 1 else 1
    rows, groups = work.micro_batch * together, work.accumulation * work.world_size // together
    if arrangement == "grouped":
        groups *= pool_steps(rows * groups, data.rows or UNKNOWN_ROWS)
    if arrangement != UNPADDED and 1 in (rows, groups):
        # No order pads other rows together.
        arrangement = DRAWN
    pairs = pairs_of(data)
    if pairs is not None:
        return _of_pairs(*pairs, (work.length, work.target_length), rows, groups, arrangement, multiple)
    return _of_rows(lengths.counts, work.length, rows, groups, arrangement, multiple)


@lru_cache(maxsize=64)
def _of_rows(
    counts: LengthCounts, limit: int, rows: int, groups: int, arrangement: Arrangement, multiple: int
) -> Moments:
    """Of rows without targets: the model has none, or as many as inputs."""
    if arrangement == UNPADDED:
        means = [counts.expected_longest(1, limit, power) for power in (1, 2)]
    elif arrangement == DRAWN:
        means = [rounded_counts(counts, multiple).expected_longest(rows, limit, power) for power in (1, 2)]
    else:
        rounded = rounded_counts(counts, multiple)
        means = [fmean(arranged_longest(rounded, limit, rows, groups, power)) for power in (1, 2)]
    return Moments(means[0], means[0], means[1], means[1], means[1])


@lru_cache(maxsize=4)
def _drawn_sides(inputs: Sequence[int], targets: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Both sides in one random order: a file may be sorted, the rows of a step are not."""
    order = np.random.default_rng(0).permutation(len(inputs))
    return tuple(np.array(side)[order] for side in (inputs, targets))


@lru_cache(maxsize=8)
def _arranged_sides(inputs: Sequence[int], targets: Sequence[int], step: int) -> tuple[np.ndarray, ...]:
    """The same with each `step` rows in order, by the longer side and the longest first; those of no whole step left out."""
    sides = _drawn_sides(inputs, targets)
    steps = [side[: len(side) // step * step].reshape(-1, step) for side in sides]
    longest_first = np.argsort(-np.maximum(*steps), axis=1, kind="stable")
    return tuple(np.take_along_axis(side, longest_first, axis=1).reshape(-1) for side in steps)


@lru_cache(maxsize=64)
def _of_pairs(
    inputs: Sequence[int],
    targets: Sequence[int],
    limits: tuple[int, int],
    rows: int,
    groups: int,
    arrangement: Arrangement,
    multiple: int,
) -> Moments:
    """Where the longer side of a pair decides its place among those of a step; the sample is cut into such steps.

    The longest of cut rows is the cut longest, so that one order serves every limit.
    """
    micro = min(rows, len(inputs))
    sides = _drawn_sides(inputs, targets)
    if arrangement not in (UNPADDED, DRAWN):
        sides = _arranged_sides(inputs, targets, min(micro * groups, len(inputs) // micro * micro))
    if arrangement != UNPADDED:
        longest = (side[: len(side) // micro * micro].reshape(-1, micro).max(axis=1) for side in sides)
        sides = tuple(-(-side // multiple) * multiple for side in longest)
    source, target = (np.minimum(side, limit).astype(np.float64) for side, limit in zip(sides, limits, strict=True))
    means = (source, target, source**2, target**2, source * target)
    return Moments(*(float(one.mean()) for one in means))


@dataclass(frozen=True, slots=True)
class Computed:
    """The mean cost of a micro-batch: in the order of the run, as drawn, and with no row padded."""

    cost: Cost
    drawn: Cost
    unpadded: Cost

    @property
    def gain(self) -> float:
        """Operations as drawn over those of the run."""
        return self.drawn.flops / self.cost.flops

    @property
    def possible_gain(self) -> float:
        return self.drawn.flops / self.unpadded.flops


def computed_by(work: Workload, data: DataSummary | None, arrangement: Arrangement, multiple: int) -> Computed | None:
    """None where no row was seen; joined texts are of one length."""
    if data is None or not work.padded:
        return None
    own, drawn, unpadded = (moments_of(work, data, one, multiple) for one in (arrangement, DRAWN, UNPADDED))
    if own is None or drawn is None or unpadded is None:
        return None
    factors = _factors(work)
    return Computed(*(_mean_cost(factors, one) for one in (own, drawn, unpadded)))


def mean_cost(work: Workload, moments: Moments) -> Cost:
    """Of a micro-batch of `work`, whose own lengths do not matter."""
    return _mean_cost(_factors(work), moments)


PLACES = ((64, 64), (64, 128), (128, 64), (128, 128), (256, 64), (64, 256))
"""(input, target) lengths that tell the six factors of the polynomial apart."""
TERMS = np.linalg.inv([(1, s, t, s * s, t * t, s * t) for s, t in PLACES])


def _factors(work: Workload) -> np.ndarray:
    """(6, 3) float64: of each term in the lengths, for operations, bytes and kernels of a micro-batch of `work`."""
    costs = (cost_of(replace(work, length=source, target_length=target)) for source, target in PLACES)
    factors: np.ndarray = TERMS @ np.array([(one.flops, one.moved_bytes, one.kernels) for one in costs])
    return factors


def _mean_cost(factors: np.ndarray, moments: Moments) -> Cost:
    means = (1, moments.source, moments.target, moments.source_squared, moments.target_squared, moments.product)
    flops, moved_bytes, kernels = (float(one) for one in np.array(means) @ factors)
    return Cost(flops, moved_bytes, kernels)
