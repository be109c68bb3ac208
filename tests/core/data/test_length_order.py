"""Rows of like length side by side: each row once, the same for every size of a micro-batch, with less padding."""

from __future__ import annotations

import numpy as np
import pytest
from trainwiz.core.data.lengths import POOL_ROWS, LengthOrder, StepShape, pool_steps
from trainwiz.core.data.streamed import Windows

from tests.each import each

SEED = 7


def lengths_of(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(rows).lognormal(4, 0.7, rows)
    return np.maximum(1, drawn).astype(np.uint32)


def grouped(lengths: np.ndarray, step_rows: int) -> LengthOrder:
    return LengthOrder(lengths, StepShape(step_rows, 1, 1), pool=pool_steps(step_rows, len(lengths)))


def order_of(windows: Windows, groups: LengthOrder, epoch: int) -> np.ndarray:
    return np.concatenate(list(groups.arranged(windows.orders(SEED, epoch), SEED, epoch)))


def windows_of(rows: int, units: int) -> Windows:
    edges = np.linspace(0, rows, units + 1).astype(np.int64)
    return Windows(edges, np.diff(edges), np.arange(units), budget=3 * rows // units)


@each("step_rows", [1, 7, 32, 500, 4096])
@each("rows", [1, 31, 2048, 9001])
@each("units", [1, 9])
def test_every_row_comes_once_an_epoch_in_an_order_of_its_own(step_rows: int, rows: int, units: int) -> None:
    windows = windows_of(rows, units)
    groups = grouped(lengths_of(rows), step_rows)
    orders = [order_of(windows, groups, epoch) for epoch in (0, 1, 0)]
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(rows))
    assert np.array_equal(orders[0], orders[2])
    assert rows < 31 or not np.array_equal(orders[0], orders[1])


@pytest.mark.parametrize("units", [1, 20])
def test_a_step_larger_than_a_pool_has_the_rows_that_it_would_have_without(units: int) -> None:
    rows, step_rows = 20_000, POOL_ROWS
    windows = windows_of(rows, units)
    plain = np.concatenate(list(windows.orders(SEED, 3)))
    lengths = lengths_of(rows)
    arranged = order_of(windows, grouped(lengths, step_rows), 3)
    for start in range(0, rows, step_rows):
        step = arranged[start : start + step_rows]
        assert set(step) == set(plain[start : start + step_rows])
        # A window that ends in a step parts it in two.
        assert np.count_nonzero(np.diff(lengths[step].astype(int)) > 0) <= (units > 1)


def test_no_row_leaves_its_window() -> None:
    windows = windows_of(9000, 9)
    groups = grouped(lengths_of(9000), 50)
    place = 0
    order = order_of(windows, groups, 2)
    for window in windows.orders(SEED, 2):
        assert set(order[place : place + len(window)]) == set(window)
        place += len(window)


@each(("micro_batch", "processes"), [(4, 1), (4, 2), (1, 3), (8, 3)])
@each("units", [1, 7])
@each("rows", [5, 96, 997])
def test_a_step_that_is_arranged_has_the_rows_that_were_drawn_for_it(
    micro_batch: int, processes: int, units: int, rows: int
) -> None:
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


@each(
    ("rows", "micro_batch", "processes", "expected"),
    [(8, 8, 1, False), (8, 4, 1, True), (8, 1, 1, False), (8, 1, 2, True), (8, 4, 2, True)],
)
def test_what_can_be_arranged(rows: int, micro_batch: int, processes: int, expected: bool) -> None:
    assert StepShape(rows, micro_batch, processes).can_be_arranged is expected
