"""The order of rows: of like length side by side, and of rows that are read while training."""

from __future__ import annotations

import numpy as np
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from trainwiz.core.data.lengths import POOL_ROWS, LengthOrder, StepShape, pool_steps
from trainwiz.core.data.streamed import SHUFFLED_AS_ONE, Windows
from trainwiz.core.training.batches import EpochSampler

from tests.each import each

SEED = 7


def lengths_of(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(rows).lognormal(4, 0.7, rows)
    return np.maximum(1, drawn).astype(np.uint32)


def order_of(windows: Windows, groups: LengthOrder, epoch: int) -> np.ndarray:
    return np.concatenate(list(groups.arranged(windows.orders(SEED, epoch), SEED, epoch)))


def windows_of(rows: int, units: int) -> Windows:
    edges = np.linspace(0, rows, units + 1).astype(np.int64)
    return Windows(edges, np.diff(edges), np.arange(units), budget=3 * rows // units)


@each("step_rows", [1, 32, POOL_ROWS])
@each("rows", [1, 2048, 20_000])
@each("units", [1, 9])
def test_every_row_comes_once_in_its_window_and_large_steps_keep_theirs(step_rows: int, rows: int, units: int) -> None:
    windows, lengths = windows_of(rows, min(units, rows)), lengths_of(rows)
    groups = LengthOrder(lengths, StepShape(step_rows, 1, 1), pool=pool_steps(step_rows, rows))
    orders = [order_of(windows, groups, epoch) for epoch in (0, 1, 0)]
    assert np.array_equal(orders[0], orders[2]) and (rows == 1 or not np.array_equal(orders[0], orders[1]))
    drawn = list(windows.orders(SEED, 0))
    for here, there in zip(np.split(orders[0], np.cumsum([len(one) for one in drawn])[:-1]), drawn, strict=True):
        assert sorted(here) == sorted(there)
    for start in range(0, rows if step_rows == POOL_ROWS < rows else 0, step_rows):
        step = orders[0][start : start + step_rows]
        assert set(step) == set(np.concatenate(drawn)[start : start + step_rows])
        # A window that ends in a step parts it in two.
        assert np.count_nonzero(np.diff(lengths[step].astype(int)) > 0) <= (units > 1)


@each(("micro_batch", "processes"), [(4, 1), (4, 2), (1, 3), (8, 3)])
@each("units", [1, 7])
@each("rows", [5, 96, 997])
def test_an_arranged_step_has_the_rows_drawn_for_it(micro_batch: int, processes: int, units: int, rows: int) -> None:
    step = StepShape(micro_batch * processes * 4, micro_batch, processes)
    lengths, windows = lengths_of(rows), windows_of(rows, min(units, rows))
    plain = np.concatenate(list(windows.orders(SEED, 1)))
    arranged = order_of(windows, LengthOrder(lengths, step), 1)
    for start in range(0, rows, step.rows):
        drawn, here = plain[start : start + step.rows], arranged[start : start + step.rows]
        assert sorted(here) == sorted(drawn)
    if units == 1:
        assert lengths[arranged[0]] == lengths[plain[: step.rows]].max(), "memory peaks in the first micro-batch"


def test_the_processes_get_neighbours_at_one_time_and_the_longer_one_in_turns() -> None:
    lengths = np.arange(24, dtype=np.uint32)
    order = order_of(windows_of(24, 1), LengthOrder(lengths, StepShape(24, 2, 3)), 0)
    assert order.reshape(4, 3, 2).max(axis=2).tolist() == [[23, 21, 19], [13, 15, 17], [11, 9, 7], [1, 3, 5]]
    shapes = [(8, 8, 1), (8, 4, 1), (8, 1, 1), (8, 1, 2), (8, 4, 2)]
    assert [StepShape(*shape).can_be_arranged for shape in shapes] == [False, True, False, True, True]


def _windows(budget: int, rows: int = 25, run: int = 1) -> Windows:
    return Windows(np.arange(41) * rows, np.full(40, 10), np.arange(40) // run, budget)


def test_a_window_of_the_same_rows_has_another_order_in_each_epoch_and_under_each_seed() -> None:
    one_run = _windows(50, run=40)
    orders = [list(one_run.orders(seed, epoch))[1].tolist() for epoch, seed in ((0, 1), (1, 1), (0, 2))]
    assert len({frozenset(order) for order in orders}) == 1
    assert len({tuple(order) for order in orders}) == 3


def test_what_a_resumed_run_must_find_to_see_rows_in_the_same_order() -> None:
    """Data that fits into one window has the order of rows in memory, in whatever pieces it lies."""
    assert _windows(10_000).described() == SHUFFLED_AS_ONE == _windows(400, run=4).described()
    several = [_windows(50), _windows(399), _windows(50, run=2), _windows(50, rows=26)]
    said = [windows.described() for windows in (*several, _windows(50).of_rows(np.arange(0, 1000, 2)))]
    assert len({*said, SHUFFLED_AS_ONE}) == 6 and said[0] == _windows(50).described()
    assert Windows(np.array([0, 5, 5]), np.full(2, 10), np.arange(2), 5).described() == SHUFFLED_AS_ONE


@each("seed", range(16))
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
