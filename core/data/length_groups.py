"""LengthGroups: rows of like length side by side, so that a micro-batch is padded little."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

POOL_ROWS = 2048
"""Rows that are arranged together, at least: 32 micro-batches of 64 rows. A larger step is arranged alone."""
LEAST_POOLS = 4
"""Of an epoch. One pool of all rows would put the same rows into the same steps again and again."""


def pool_steps(step_rows: int, rows: int) -> int:
    """Optimizer steps whose rows are arranged together, in an epoch of `rows` rows.

    It must not depend on the size of a micro-batch, which may change when a run is resumed; the
    rows of a step may not.
    """
    steps = math.ceil(rows / step_rows)
    return max(1, min(math.ceil(POOL_ROWS / step_rows), steps // LEAST_POOLS))


class LengthGroups:
    """Arranges an order of rows by length, pool by pool; still a function of (seed, epoch), each row once.

    The rows of a pool are sorted, the longest first, and cut into its steps, which follow each other
    in an order drawn by (seed, epoch, pool). So a step has rows of like length, the longest first,
    and the micro-batches that the processes compute at one time have neighbours in it. A pool of one
    step has the rows that it would have without, in another order.
    """

    def __init__(self, lengths: np.ndarray, step_rows: int) -> None:
        """`lengths` (rows,) int: of each row, in any unit; `step_rows`: of all processes in one optimizer step."""
        self._lengths = lengths
        self._step_rows = step_rows
        self._pool_rows = step_rows * pool_steps(step_rows, len(lengths))

    def arranged(self, orders: Iterable[np.ndarray], seed: int, epoch: int) -> Iterator[np.ndarray]:
        """`orders`: rows (n,) int64 window by window. No row leaves its window, whose rows alone are in memory."""
        place = number = 0
        for order in orders:
            start = 0
            while start < len(order):
                end = min(len(order), start + self._pool_rows - place % self._pool_rows)
                generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, number, 4, 0]))
                yield self._pool(order[start:end], place, generator)
                place += end - start
                number += 1
                start = end

    def _pool(self, rows: np.ndarray, place: int, generator: np.random.Generator) -> np.ndarray:
        """`rows` of the places from `place` on, arranged."""
        # Stable: rows of one length stay in the order in which they were drawn.
        ordered = rows[np.argsort(-self._lengths[rows].astype(np.int64), kind="stable")]
        inside = np.arange(self._step_rows - place % self._step_rows, len(rows), self._step_rows)
        starts = np.concatenate([[0], inside]).astype(np.int64)
        sizes = np.diff(np.append(starts, len(rows)))
        drawn = generator.permutation(len(sizes))
        arranged = np.empty_like(rows)
        taken = 0
        for step in drawn.tolist():
            size, start = int(sizes[step]), int(starts[step])
            arranged[start : start + size] = ordered[taken : taken + size]
            taken += size
        return arranged
