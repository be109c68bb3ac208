"""The order of rows: of like length side by side, and of rows that are read while training."""

from __future__ import annotations

import numpy as np
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from trainwiz.core.data.lengths import (
    POOL_ROWS,
    SHUFFLED_AS_ONE,
    UNIT_BYTES,
    WINDOW_UNITS,
    LengthOrder,
    StepShape,
    Windows,
    pool_steps,
)
from trainwiz.core.training.batches import EpochSampler

from tests.each import each

SEED = 7


def lengths_of(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(rows).lognormal(4, 0.7, rows)
    return np.maximum(1, drawn).astype(np.uint32)


def order_of(windows: Windows, groups: LengthOrder, epoch: int) -> np.ndarray:
    return np.concatenate(list(groups.arranged(windows.orders(SEED, epoch), SEED, epoch)))


def windows_of(rows: int, windows: int) -> Windows:
    return Windows(np.full(rows, windows * WINDOW_UNITS * UNIT_BYTES // rows))


@each("step_rows", [1, 32, POOL_ROWS])
@each("rows", [1, 2048, 20_000])
@each("windows", [1, 3])
def test_every_row_comes_once_in_its_window_and_large_steps_keep_theirs(
    step_rows: int, rows: int, windows: int
) -> None:
    order, lengths = windows_of(rows, windows), lengths_of(rows)
    groups = LengthOrder(lengths, StepShape(step_rows, 1, 1), pool=pool_steps(step_rows, rows))
    orders = [order_of(order, groups, epoch) for epoch in (0, 1, 0)]
    assert np.array_equal(orders[0], orders[2]) and (rows == 1 or not np.array_equal(orders[0], orders[1]))
    drawn = list(order.orders(SEED, 0))
    assert len(drawn) == min(windows, rows)
    for here, there in zip(np.split(orders[0], np.cumsum([len(one) for one in drawn])[:-1]), drawn, strict=True):
        assert sorted(here) == sorted(there)
    for start in range(0, rows if step_rows == POOL_ROWS < rows else 0, step_rows):
        step = orders[0][start : start + step_rows]
        assert set(step) == set(np.concatenate(drawn)[start : start + step_rows])
        # A window that ends in a step parts it in two.
        assert np.count_nonzero(np.diff(lengths[step].astype(int)) > 0) <= (windows > 1)


@each(("micro_batch", "processes"), [(4, 1), (4, 2), (1, 3), (8, 3)])
@each("windows", [1, 3])
@each("rows", [5, 96, 997])
def test_an_arranged_step_has_the_rows_drawn_for_it(micro_batch: int, processes: int, windows: int, rows: int) -> None:
    step = StepShape(micro_batch * processes * 4, micro_batch, processes)
    lengths, order = lengths_of(rows), windows_of(rows, windows)
    plain = np.concatenate(list(order.orders(SEED, 1)))
    arranged = order_of(order, LengthOrder(lengths, step), 1)
    for start in range(0, rows, step.rows):
        drawn, here = plain[start : start + step.rows], arranged[start : start + step.rows]
        assert sorted(here) == sorted(drawn)
    if windows == 1:
        assert lengths[arranged[0]] == lengths[plain[: step.rows]].max(), "memory peaks in the first micro-batch"


def test_the_processes_get_neighbours_at_one_time_and_the_longer_one_in_turns() -> None:
    lengths = np.arange(24, dtype=np.uint32)
    order = order_of(windows_of(24, 1), LengthOrder(lengths, StepShape(24, 2, 3)), 0)
    assert order.reshape(4, 3, 2).max(axis=2).tolist() == [[23, 21, 19], [13, 15, 17], [11, 9, 7], [1, 3, 5]]
    shapes = [(8, 8, 1), (8, 4, 1), (8, 1, 1), (8, 1, 2), (8, 4, 2)]
    assert [StepShape(*shape).can_be_arranged for shape in shapes] == [False, True, False, True, True]


def test_what_a_resumed_run_must_find_to_see_rows_in_the_same_order() -> None:
    """Data that fits into one window has the order of rows in memory."""
    assert Windows(np.full(9, 5)).described() == SHUFFLED_AS_ONE == Windows(np.empty(0, np.int64)).described()
    said = [windows_of(rows, windows).described() for rows, windows in ((1000, 3), (1000, 4), (1001, 3), (1000, 3))]
    assert len({*said, SHUFFLED_AS_ONE}) == 4 and said[0] == said[3]


@each("seed", range(16))
def test_no_row_is_lost_or_doubled_for_any_pieces_ranks_and_resumes(seed: int) -> None:
    """Random lengths; random micro-batches, ranks, and a stop that changes them."""
    drawn = np.random.default_rng(seed)
    rows_in_all, longest = int(drawn.integers(1, 1200)), int(drawn.integers(1, UNIT_BYTES))
    windows = Windows(drawn.integers(0, longest, rows_in_all))
    epoch = int(drawn.integers(0, 5))
    sampler = EpochSampler(rows_in_all, seed, windows=windows)
    sampler.start_epoch(epoch)
    assert sorted(row for _, row in sampler) == list(range(rows_in_all))
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
    assert sorted(seen) == list(range(rows_in_all))
    assert sampler.order == windows.described()
