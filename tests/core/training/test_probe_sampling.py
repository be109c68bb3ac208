"""A probe's own steps stand for whole ones, long and short micro-batches alike."""

from __future__ import annotations

import numpy as np
import pytest
from trainwiz.core.data.lengths import LengthOrder, StepShape
from trainwiz.core.training.batches import EpochSampler
from trainwiz.core.training.probe_rows import SpreadSampler

from tests.each import each

LENGTHS = np.random.default_rng(3).lognormal(5, 0.6, 20_000).astype(np.uint32)


def padded(rows: list[int], micro_batch: int) -> float:
    """Tokens of a micro-batch on average."""
    whole = len(rows) // micro_batch * micro_batch
    return float(LENGTHS[rows[:whole]].reshape(-1, micro_batch).max(axis=1).mean())


@each("processes", [1, 2])
@each(("accumulation", "rounds"), [(16, 4), (5, 4), (40, 2), (4, 4), (3, 2)])
def test_a_few_micro_batches_are_as_long_as_all_of_them(accumulation: int, rounds: int, processes: int) -> None:
    step = StepShape(8 * processes * accumulation, 8, processes)
    whole = EpochSampler(len(LENGTHS), 1, lengths=LengthOrder(LENGTHS, step))
    some = SpreadSampler(EpochSampler(len(LENGTHS), 1, lengths=LengthOrder(LENGTHS, step)), step, rounds)
    found = [row for _, row in some]
    assert len(found) == len(some)
    assert set(found) <= set(range(len(LENGTHS))) and len(set(found)) == len(found)
    steps = len(LENGTHS) // step.rows
    all_rows = [row for _, row in whole]
    assert padded(found[: steps * rounds * 8 * processes], 8) == pytest.approx(padded(all_rows, 8), rel=0.05)


def test_rows_that_are_no_whole_step_are_all_there_is() -> None:
    step = StepShape(640, 8, 1)
    some = SpreadSampler(EpochSampler(100, 1, lengths=LengthOrder(LENGTHS[:100], step)), step, 4)
    some.fill_up(8)
    assert len(some) == 104 == len(list(some))
