"""What data.group_by_length does to a step: the tokens that are computed where rows of like length go together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from trainwiz.core.data.length_groups import pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.padding import Padding, padding_of
from trainwiz.core.plan.lengths import lengths_of

UNKNOWN_ROWS = 10**9
"""Of data that is not here: more than any pool."""


def grouped_padding(
    data: DataSummary | None, limit: int, target_limit: int, micro_batch: int, groups: int
) -> Padding | None:
    """Tokens of an optimizer step of `groups` micro-batches over all processes, its rows arranged by length; of the
    inputs alone, as a plan counts them. None where no row was seen."""
    lengths = lengths_of(data.lengths) if data is not None else None
    if data is None or lengths is None:
        return None
    step_rows = micro_batch * groups
    pool = pool_steps(step_rows, data.rows or UNKNOWN_ROWS)
    of_pool = padding_of(lengths.counts, limit, micro_batch, groups * pool)
    arranged = of_pool.arranged / pool
    pairs = _pairs(data)
    if pairs is not None:
        arranged = max(arranged, step_rows * paired_lengths(*pairs, limit, target_limit, micro_batch)[0])
    return Padding(of_pool.real / pool, arranged, arranged)


def grouped_lengths(
    data: DataSummary, limit: int, target_limit: int, micro_batch: int, groups: int
) -> tuple[float, float | None]:
    """(input, target) tokens to which a row is padded on average; no target where rows have none."""
    padding = grouped_padding(data, limit, target_limit, micro_batch, groups)
    pairs = _pairs(data)
    target = None if pairs is None else paired_lengths(*pairs, limit, target_limit, micro_batch)[1]
    return (float(limit) if padding is None else padding.padded / (micro_batch * groups)), target


def _pairs(data: DataSummary) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return (data.lengths, data.target_lengths) if len(data.target_lengths) == len(data.lengths) > 0 else None


@lru_cache(maxsize=64)
def paired_lengths(
    inputs: Sequence[int], targets: Sequence[int], limit: int, target_limit: int, micro_batch: int
) -> tuple[float, float]:
    """Mean length of padded inputs and of padded targets, where the longer side of a pair decides its place: the rows
    of the sample as one pool."""
    ordered = sorted(zip(inputs, targets, strict=True), key=max, reverse=True)
    longest = [0, 0]
    for start in range(0, len(ordered), micro_batch):
        batch = ordered[start : start + micro_batch]
        longest[0] += len(batch) * min(limit, max(one for one, _ in batch))
        longest[1] += len(batch) * min(target_limit, max(other for _, other in batch))
    return longest[0] / len(ordered), longest[1] / len(ordered)
