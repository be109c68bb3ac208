"""How the rows of a step are arranged (data.arrange_by_length, data.group_by_length), and what is computed then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.length_order import StepShape, pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.padding import Padding, padding_of
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.lengths import Lengths, lengths_of, step_padding
from trainwiz.core.plan.words import percent

Arrangement = Literal["drawn", "arranged", "grouped", "packed"]
"""Of the rows of a step: as they were drawn; sorted by length within the step; within several steps; end to end."""

KEY = "data.arrange_by_length"
UNKNOWN_ROWS = 10**9
"""Of data that is not here: more than any pool."""
SHARED = ("zero3", "fsdp")
"""Engines whose processes wait for each other in every block, not only at the end of a step."""


def settle_arrangement(draft: Draft, world_size: int, data: DataSummary | None) -> None:
    """On where a step is more than one micro-batch: the gradient is the same sum, of fewer tokens that are padding."""
    if not draft.is_open(KEY):
        return
    micro, accumulation = (
        int(draft.get(key) or 1) for key in ("batch.micro_batch_size", "batch.gradient_accumulation_steps")
    )
    groups = accumulation * world_size
    if joins_texts(draft.view()):
        draft.put(KEY, False, tr("joined texts have one length"))
    elif groups == 1:
        draft.put(KEY, False, tr("a step is one micro-batch: there is nothing to arrange"))
    elif not StepShape(micro * groups, micro, world_size).can_be_arranged:
        draft.put(KEY, False, tr("a micro-batch of one row has no padding"))
    elif draft.get("training.loss_mean") == "micro_batches":
        draft.put(KEY, False, tr("rows that share a micro-batch share the weight of its mean"))
    elif draft.get("data.packing"):
        draft.put(KEY, True, tr("each micro-batch of a step gets as many tokens; none is padding"))
    else:
        draft.put(KEY, True, _gain(draft, data, micro, groups))


def _gain(draft: Draft, data: DataSummary | None, micro: int, groups: int) -> str:
    limit = int(draft.get("batch.sequence_length"))
    target = int(draft.get("batch.target_length") or limit)
    multiple = multiple_of(draft.get)
    plain = step_padding(data, limit, micro, groups, joined=False, multiple=multiple)
    arranged = arranged_padding(data, limit, target, micro, groups, "arranged", multiple)
    if plain is None or arranged is None:
        return tr("the same gradient with less padding")
    return tr(
        "the same gradient; padding {plain} -> {arranged}", plain=percent(plain.waste), arranged=percent(arranged.waste)
    )


def arrangement_of(get: Callable[[str], Any]) -> Arrangement:
    """By `get(key)` of a config or a draft."""
    if get("data.packing"):
        return "packed"
    if get("data.group_by_length"):
        return "grouped"
    return "arranged" if get(KEY) else "drawn"


def multiple_of(get: Callable[[str], Any]) -> int:
    """What micro-batches are padded to a multiple of, by `get(key)` of a config or a draft."""
    return int(get("data.pad_to_multiple_of") or 1)


def arranged_padding(
    data: DataSummary | None,
    limit: int,
    target_limit: int,
    micro_batch: int,
    groups: int,
    arrangement: Arrangement,
    multiple: int = 1,
) -> Padding | None:
    """Tokens of an optimizer step of `groups` micro-batches over all processes that is not "drawn"; of the inputs
    alone, as a plan counts them. None where no row was seen."""
    lengths = lengths_of(data.lengths) if data is not None else None
    if data is None or lengths is None:
        return None
    step_rows = micro_batch * groups
    if arrangement == "packed":
        real = step_rows * lengths.mean_up_to(limit)
        return Padding(real, real, real)
    pool = pool_steps(step_rows, data.rows or UNKNOWN_ROWS) if arrangement == "grouped" else 1
    of_pool = padding_of(lengths.counts, limit, micro_batch, groups * pool, multiple)
    arranged = of_pool.arranged / pool
    pairs = pairs_of(data)
    if pairs is not None:
        sides = paired_lengths(*pairs, limit, target_limit, groups * pool, step_rows * pool, multiple)
        arranged = max(arranged, step_rows * sides[0])
    return Padding(of_pool.real / pool, arranged, arranged)


def usual_lengths(work: Workload, data: DataSummary, arrangement: Arrangement, multiple: int = 1) -> tuple[int, int]:
    """(input, target) tokens of a row of `work` as it is padded, to a `multiple`, on average while the processes compute.

    A process that has a shorter micro-batch waits for the others: at each micro-batch where they hold parts of the
    model, else at the end of the step, by when each has had its share of short and long ones.
    """
    together = work.world_size if work.strategy in SHARED or work.accumulation == 1 else 1
    rows, groups = work.micro_batch * together, work.accumulation * work.world_size // together
    if arrangement == "drawn":
        sides = (data.lengths, work.length), (data.target_lengths, work.target_length)
        source, target = (_longest_of(lengths_of(side), rows, most, multiple) for side, most in sides)
        return source, target
    padding = arranged_padding(data, work.length, work.target_length, rows, groups, arrangement, multiple)
    source = work.length if padding is None else round(padding.padded / (rows * groups))
    pairs = pairs_of(data)
    if pairs is None:
        return source, work.target_length
    pool = pool_steps(rows * groups, data.rows or UNKNOWN_ROWS) if arrangement == "grouped" else 1
    sides_of = paired_lengths(*pairs, work.length, work.target_length, groups * pool, rows * groups * pool, multiple)
    return source, round(sides_of[1])


def _longest_of(lengths: Lengths | None, rows: int, most: int, multiple: int) -> int:
    return most if lengths is None else lengths.usual_longest(rows, most, multiple)


def pairs_of(data: DataSummary) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Tokens of the inputs and of the targets of the same rows; None for rows without a target."""
    return (data.lengths, data.target_lengths) if len(data.target_lengths) == len(data.lengths) > 0 else None


@lru_cache(maxsize=64)
def paired_lengths(
    inputs: Sequence[int],
    targets: Sequence[int],
    limit: int,
    target_limit: int,
    groups: int,
    rows: int,
    multiple: int = 1,
) -> tuple[float, float]:
    """Mean length of padded inputs and of padded targets, each to a `multiple`, where the longer side of a pair decides
    its place among `rows` that are cut into `groups` micro-batches. The sample stands for as many such sets as it makes."""
    # A file may be sorted; the rows of a step are not.
    drawn = np.random.default_rng(0).permutation(len(inputs))
    size = min(rows, len(drawn))
    sets = drawn[: len(drawn) // size * size].reshape(-1, size)
    sides = [np.array(side)[sets] for side in (inputs, targets)]
    longest_first = np.argsort(-np.maximum(*sides), axis=1, kind="stable")
    edges = np.linspace(0, size, min(groups, size) + 1).round().astype(np.int64)
    means = []
    for side, limit_of_side in zip(sides, (limit, target_limit), strict=True):
        ordered = np.minimum(np.take_along_axis(side, longest_first, axis=1), limit_of_side)
        longest = np.maximum.reduceat(ordered, edges[:-1], axis=1)
        longest = np.minimum(-(-longest // multiple) * multiple, limit_of_side)
        means.append(float((longest * np.diff(edges)).sum(axis=1).mean() / size))
    return means[0], means[1]
