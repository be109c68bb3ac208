"""How the rows of a step are arranged, and what a step computes on their real lengths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Literal

import numpy as np
from trainwiz.core.data.lengths import StepShape, joins_texts, pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.flops import (
    Cost,
    LengthCounts,
    Padding,
    arranged_longest,
    kernels,
    micro_batch_flops,
    moved_bytes,
    padding_of,
    rounded_counts,
    weight_bytes,
)
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import percent

# Questions to the lengths of a sample of rows, answered from one sorting: a plan is made at every keystroke.


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of rows, shortest first; never empty."""

    ordered: tuple[int, ...]
    counts: LengthCounts

    @property
    def longest(self) -> int:
        return self.ordered[-1]

    def quantile(self, numerator: int, denominator: int) -> int:
        """The length that numerator / denominator of the rows keep to."""
        return self.ordered[min(len(self.ordered) - 1, len(self.ordered) * numerator // denominator)]

    def share_above(self, limit: int) -> float:
        return 1 - bisect_right(self.ordered, limit) / len(self.ordered)


@lru_cache(maxsize=32)
def length_quantiles(rows: tuple[int, ...]) -> tuple[int, ...]:
    """65 of them, from 0 to 1: enough for the longest of some hundred rows. Empty for no rows."""
    lengths = lengths_of(rows)
    if lengths is None:
        return ()
    last = len(lengths.ordered) - 1
    return tuple(lengths.ordered[round(place * last / 64)] for place in range(65))


@lru_cache(maxsize=32)
def lengths_of(rows: tuple[int, ...]) -> Lengths | None:
    """None for no rows."""
    ordered = tuple(sorted(rows))
    return Lengths(ordered, LengthCounts.of(ordered)) if ordered else None


# How the rows of a step are arranged (data.arrange_by_length, data.group_by_length), and what is computed then.

Arrangement = Literal["drawn", "arranged", "grouped", "packed"]
"""Of the rows of a step: as they were drawn; sorted by length within the step; within several steps; end to end."""

KEY = "data.arrange_by_length"
UNKNOWN_ROWS = 10**9
"""Of data that is not here: more than any pool."""
SHARED = ("zero3", "fsdp")
"""Engines whose processes wait for each other in every block, not only at the end of a step."""


def resolve_arrangement(plan: Plan) -> None:
    """On where a step is more than one micro-batch: the gradient is the same sum, of fewer tokens that are padding. Its loss
    is a mean of tokens, the one that does not depend on how a step is cut."""
    reason = tr("every label in a step has the same weight, however the step is split")
    plan.resolve("training.loss_mean", "tokens", reason)
    if not plan.is_open(KEY):
        return
    micro, groups = step_of(plan)
    apart = StepShape(micro * groups, micro, plan.devices.world_size).can_be_arranged
    if joins_texts(plan.view()) or groups == 1 or not apart:
        arranged = False
        reason = tr("a step of one micro-batch, of one row each, or of texts of one length has nothing to rearrange")
    elif plan.get("training.loss_mean") == "micro_batches":
        arranged, reason = False, tr("rows that share a micro-batch share the weight of its mean")
    elif plan.get("data.packing"):
        arranged, reason = True, tr("each micro-batch of a step has about the same number of tokens; no padding")
    else:
        arranged, reason = True, tr("the same gradient with less padding")
        padded = [step_padding(plan, arrangement) for arrangement in ("drawn", "arranged")]
        plain, less = (percent(padding.waste) if padding else "" for padding in padded)
        if plain and less:
            reason = tr("the same gradient; padding {plain} -> {arranged}", plain=plain, arranged=less)
    plan.put(KEY, arranged, reason)


def step_of(plan: Plan) -> tuple[int, int]:
    """Rows of a micro-batch, and micro-batches of a step over all processes."""
    micro, accumulation = plan.get("batch.micro_batch_size"), plan.get("batch.gradient_accumulation_steps")
    return int(micro or 1), int(accumulation or 1) * plan.devices.world_size


def arrangement_of(plan: Plan) -> Arrangement:
    if plan.get("data.packing"):
        return "packed"
    if plan.get("data.group_by_length"):
        return "grouped"
    return "arranged" if plan.get(KEY) else "drawn"


def multiple_of(plan: Plan) -> int:
    """What micro-batches are padded to a multiple of."""
    return int(plan.get("data.pad_to_multiple_of") or 1)


def step_padding(plan: Plan, arrangement: Arrangement) -> Padding | None:
    """Tokens of an optimizer step, over all processes; of the inputs alone, as a plan counts them. None where no row
    was seen."""
    lengths = lengths_of(plan.data.lengths) if plan.data is not None else None
    if plan.data is None or lengths is None:
        return None
    (micro, groups), limit, multiple = step_of(plan), int(plan.get("batch.sequence_length")), multiple_of(plan)
    if plan.get("data.concatenate"):
        whole = float(micro * groups * limit)
        return Padding(whole, whole, whole)
    if arrangement == "drawn":
        return padding_of(lengths.counts, limit, micro, groups, multiple)
    target = int(plan.get("batch.target_length") or limit)
    return _arranged_padding(plan.data, lengths, (limit, target), micro, groups, arrangement, multiple)


def _arranged_padding(
    data: DataSummary,
    lengths: Lengths,
    limits: tuple[int, int],
    micro_batch: int,
    groups: int,
    arrangement: Arrangement,
    multiple: int,
) -> Padding:
    """Of a step of `groups` micro-batches that are not as drawn."""
    step_rows = micro_batch * groups
    if arrangement == "packed":
        real = step_rows * lengths.counts.mean(limits[0])
        return Padding(real, real, real)
    pool = pool_steps(step_rows, data.rows or UNKNOWN_ROWS) if arrangement == "grouped" else 1
    of_pool = padding_of(lengths.counts, limits[0], micro_batch, groups * pool, multiple)
    arranged = of_pool.arranged / pool
    pairs = pairs_of(data)
    if pairs is not None:
        longest = _of_pairs(*pairs, limits, micro_batch, groups * pool, "arranged", multiple)[1]
        arranged = max(arranged, step_rows * float(longest))
    return Padding(of_pool.real / pool, arranged, arranged)


def pairs_of(data: DataSummary) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Tokens of the inputs and of the targets of the same rows; None for rows without a target."""
    return (data.lengths, data.target_lengths) if len(data.target_lengths) == len(data.lengths) > 0 else None


# What a step computes on the real lengths of its rows: the mean cost of a micro-batch, and what its order saves.
#
# The operations of a micro-batch are a polynomial of degree 2 in the lengths that it is padded to (products grow with a
# length, attention with its square, cross-attention with the product of both), so that means of lengths, squares and
# products give the mean over all micro-batches exactly.

UNPADDED: Arrangement = "packed"
"""Each row computed at its own length."""
DRAWN: Arrangement = "drawn"


Moments = np.ndarray
"""(6,) float64: means over micro-batches of 1, the length of inputs and of targets, their squares and their product."""


def moments_of(work: Workload, data: DataSummary, arrangement: Arrangement, multiple: int = 1) -> Moments | None:
    """Of the micro-batches that the processes of `work` compute on rows like `data`, padded to a `multiple`; None where
    no row was seen. Processes that wait for each other count as one."""
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
    return np.array([1.0, means[0], means[0], means[1], means[1], means[1]])


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
    terms = np.stack([np.ones_like(source), source, target, source**2, target**2, source * target])
    means: Moments = terms.mean(axis=1)
    return means


@dataclass(frozen=True, slots=True)
class PaddedCost:
    """The mean cost of a micro-batch: in the order of the run, as drawn, and with no row padded."""

    cost: Cost
    drawn: Cost
    unpadded: Cost


def padded_cost(
    work: Workload | None, data: DataSummary | None, arrangement: Arrangement, multiple: int
) -> PaddedCost | None:
    """None where no row was seen; joined texts are of one length."""
    if work is None or data is None or not work.padded:
        return None
    own, drawn, unpadded = (moments_of(work, data, order, multiple) for order in (arrangement, DRAWN, UNPADDED))
    if own is None or drawn is None or unpadded is None:
        return None
    if arrangement == UNPADDED and work.attention != "flash_attention_2":
        own = _squared_together(own, work.micro_batch)
    factors = _factors(work)
    return PaddedCost(*(_mean_cost(work, factors, moments) for moments in (own, drawn, unpadded)))


def _squared_together(rows: Moments, micro_batch: int) -> Moments:
    """Of rows end to end whose attention computes each token with all of the micro-batch and hides the other rows: for
    each row, the mean square of a sum of `micro_batch` independent lengths over their number."""
    square = rows[3] + (micro_batch - 1) * rows[1] ** 2
    return np.array([*rows[:3], square, square, square])


PLACES = ((64, 64), (64, 128), (128, 64), (128, 128), (256, 64), (64, 256))
"""(input, target) lengths that tell the six factors of the polynomial apart."""
TERMS = np.linalg.inv([(1, s, t, s * s, t * t, s * t) for s, t in PLACES])


def _factors(work: Workload) -> np.ndarray:
    """(6, 3) float64: of each term in the lengths, for operations, bytes and kernels of a micro-batch of `work`."""
    sizes = (replace(work, length=source, target_length=target) for source, target in PLACES)
    costs = [(micro_batch_flops(one), moved_bytes(one), kernels(one)) for one in sizes]
    factors: np.ndarray = TERMS @ np.array(costs)
    return factors


def _mean_cost(work: Workload, factors: np.ndarray, moments: Moments) -> Cost:
    flops, moved, launched = (float(one) for one in moments @ factors)
    # What weights move is no polynomial: at the mean lengths.
    usual = replace(work, length=max(1, round(moments[1])), target_length=max(1, round(moments[2])))
    return Cost(flops, moved + weight_bytes(usual), launched)
