"""The order of rows that are read while training."""

from __future__ import annotations

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from trainwiz.core.data.streamed import SHUFFLED_AS_ONE, Windows
from trainwiz.core.training.batches import EpochSampler

from tests.each import each


def _windows(budget: int, units: int = 40, rows: int = 25, run: int = 1) -> Windows:
    edges = np.arange(units + 1) * rows
    return Windows(edges, np.full(units, 10), np.arange(units) // run, budget)


def _orders(windows: Windows, epoch: int = 0, seed: int = 7) -> list[list[int]]:
    return [order.tolist() for order in windows.orders(seed, epoch)]


def test_a_window_of_the_same_rows_has_another_order_in_each_epoch_and_under_each_seed() -> None:
    one_run = _windows(50, run=40)
    orders = [_orders(one_run, epoch, seed)[1] for epoch, seed in ((0, 1), (1, 1), (0, 2))]
    assert len({frozenset(order) for order in orders}) == 1
    assert len({tuple(order) for order in orders}) == 3


def test_units_of_a_run_follow_each_other() -> None:
    orders = _orders(_windows(10, run=4))
    units = [order[0] // 25 for order in orders]
    runs = [units[start : start + 4] for start in range(0, 40, 4)]
    assert all(run == list(range(run[0], run[0] + 4)) for run in runs)
    assert [run[0] for run in runs] != sorted(run[0] for run in runs)


@pytest.mark.parametrize(("budget", "several"), [(10_000, False), (400, False), (399, True), (1, True)])
def test_what_fits_into_one_window_is_known(budget: int, several: bool) -> None:
    assert _windows(budget).several is several
    assert (len(_orders(_windows(budget))) > 1) is several


def test_what_a_resumed_run_must_find_to_see_rows_in_the_same_order() -> None:
    """Data that fits into one window has the order of rows in memory, in whatever pieces it lies."""
    assert _windows(10_000).described() == SHUFFLED_AS_ONE == _windows(400, run=4).described()
    several = [
        _windows(50),
        _windows(60),
        _windows(50, run=2),
        _windows(50, rows=26),
        _windows(50).of_rows(np.arange(0, 1000, 2)),
    ]
    said = [windows.described() for windows in several]
    assert len({*said, SHUFFLED_AS_ONE}) == 6
    assert said[0] == _windows(50).described()
    assert Windows(np.array([0, 5, 5]), np.full(2, 10), np.arange(2), 5).described() == SHUFFLED_AS_ONE


@each("seed", range(40))
def test_no_row_is_lost_or_doubled_for_any_pieces_ranks_and_resumes(seed: int) -> None:
    """Random units, runs and held-out rows; random budgets, micro-batches, ranks, and a stop that changes them."""
    drawn = np.random.default_rng(seed)
    units = int(drawn.integers(1, 60))
    edges = np.concatenate([[0], np.cumsum(drawn.integers(0, 40, units))])
    runs = np.cumsum(drawn.random(units) < 0.5)
    whole = Windows(edges, drawn.integers(1, 500, units), runs, int(drawn.integers(1, 4000)))
    kept = np.flatnonzero(drawn.random(edges[-1]) < 0.9)
    windows = whole.of_rows(kept)
    epoch = int(drawn.integers(0, 5))
    sampler = EpochSampler(len(kept), seed, windows=windows)
    sampler.start_epoch(epoch)
    assert sorted(row for _, row in sampler) == list(range(len(kept)))
    seen: list[int] = []
    step = 0
    while True:
        # Recovery halves a micro-batch, and another number of processes may go on: never the rows of a step.
        ranks = int(drawn.choice([1, 2, 4]))
        micro_batch = 8 // ranks
        sampler.fill_up(8)
        rows = [row for _, row in sampler]
        parts = [list(BatchSamplerShard(BatchSampler(rows, micro_batch, False), ranks, rank)) for rank in range(ranks)]
        stop = min(step + int(drawn.integers(1, 9)), len(parts[0]))
        seen += [row for part in parts for batch in part[step:stop] for row in batch if row >= 0]
        step = stop
        if step == len(parts[0]):
            break
    assert sorted(seen) == list(range(len(kept)))
    assert sampler.order == windows.described()
