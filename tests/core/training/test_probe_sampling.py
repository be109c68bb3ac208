"""A probe's own steps stand for whole ones, long and short micro-batches alike."""

from __future__ import annotations

import numpy as np
import pytest
from trainwiz.core.data.lengths import LengthOrder, StepShape
from trainwiz.core.training.batches import EpochSampler
from trainwiz.core.training.probe_rows import Part, SpreadSampler
from trainwiz.core.training.probe_trainer import Passes

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


def test_what_is_not_computed_is_known_by_its_length() -> None:
    step = StepShape(8 * 16, 8, 1)
    order = EpochSampler(len(LENGTHS), 1, lengths=LengthOrder(LENGTHS, step))
    some = SpreadSampler(EpochSampler(len(LENGTHS), 1, lengths=LengthOrder(LENGTHS, step)), step, 4, lambda: LENGTHS)
    rows = [row for _, row in order]
    longest = LENGTHS[rows[: len(rows) // 128 * 128]].reshape(-1, 16, 8).max(axis=2)
    computed = LENGTHS[[row for _, row in some]].reshape(-1, 4, 8).max(axis=2)
    assert len(some.parts) == len(longest) == len(computed)
    for part, of_step, measured in zip(some.parts, longest, computed, strict=True):
        assert part.measured == tuple(measured)
        assert part.whole * measured.sum() == pytest.approx(of_step.sum())


@pytest.mark.parametrize("start_s", [0.0, 0.02])
def test_the_time_of_what_is_not_computed_goes_by_its_length(start_s: float) -> None:
    passes, part = Passes(), Part((400.0, 300.0, 200.0, 100.0), (350.0, 250.0, 150.0, 50.0))
    seconds = [start_s + 1e-3 * length for length in part.measured[:-1]]
    # The mean of the first three, the longest ones, would say 1.2 s and more.
    assert passes.missing_s(seconds, part, 4) == pytest.approx(4 * start_s + 0.8)
    # A step at half the pace: what is missing is as slow.
    assert passes.missing_s([2 * one for one in seconds], part, 4) == pytest.approx(2 * (4 * start_s + 0.8), rel=0.02)


def test_the_time_of_rows_in_no_order_of_length_is_that_of_the_others() -> None:
    assert Passes().missing_s([1.0, 2.0, 3.0], None, 6) == pytest.approx(12.0)
    assert Passes().missing_s([1.0, 2.0, 3.0], Part((1.0,) * 4, (1.0,) * 6), 6) == pytest.approx(12.0)
    assert Passes().missing_s([], None, 6) == 0.0


def test_rows_that_are_no_whole_step_are_all_there_is() -> None:
    step = StepShape(640, 8, 1)
    some = SpreadSampler(EpochSampler(100, 1, lengths=LengthOrder(LENGTHS[:100], step)), step, 4)
    some.fill_up(8)
    assert len(some) == 104 == len(list(some))
