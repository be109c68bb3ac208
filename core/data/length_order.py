"""LengthOrder: rows of like length side by side, so that a micro-batch is padded little."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

POOL_ROWS = 2048
"""Rows that are arranged together across steps, at least: 32 micro-batches of 64 rows. A larger step is arranged alone."""
LEAST_POOLS = 4
"""Of an epoch. One pool of all rows would put the same rows into the same steps again and again."""


def pool_steps(step_rows: int, rows: int) -> int:
    """Optimizer steps whose rows data.group_by_length arranges together, in an epoch of `rows` rows.

    It must not depend on the size of a micro-batch, which may change when a run is resumed; the
    rows of a step may not.
    """
    steps = math.ceil(rows / step_rows)
    return max(1, min(math.ceil(POOL_ROWS / step_rows), steps // LEAST_POOLS))


@dataclass(frozen=True, slots=True)
class StepShape:
    """How the rows of one optimizer step are computed."""

    rows: int
    """Of all processes."""
    micro_batch: int
    processes: int

    @property
    def can_be_arranged(self) -> bool:
        """Whether the order of its rows changes what is computed: which rows are padded together, or what each process gets."""
        return self.rows > self.micro_batch > (1 if self.processes == 1 else 0)


class LengthOrder:
    """Arranges an order of rows by length, pool by pool; still a function of (seed, epoch), each row once.

    The rows of a pool are sorted, the longest first, and cut into its steps, which follow each other
    in an order drawn by (seed, epoch, pool). So a step has rows of like length, the longest first,
    and the micro-batches that the processes compute at one time have neighbours in it. A pool of one
    step has the rows that it would have without, in another order: its gradient is the same sum.
    """

    def __init__(self, lengths: np.ndarray, step: StepShape, *, pool: int = 1, even: bool = False) -> None:
        """`lengths` (rows,) int: of each row, in any unit; `pool`: steps whose rows are arranged together. `even`: each
        micro-batch of a step gets long and short rows, as many units as the others, where nothing is padded."""
        self._lengths = lengths
        self._step = step
        self._pool_rows = step.rows * pool
        self._even = even

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
        inside = np.arange(self._step.rows - place % self._step.rows, len(rows), self._step.rows)
        starts = np.concatenate([[0], inside]).astype(np.int64)
        sizes = np.diff(np.append(starts, len(rows)))
        drawn = generator.permutation(len(sizes))
        arranged = np.empty_like(rows)
        taken = 0
        for step in drawn.tolist():
            size, start = int(sizes[step]), int(starts[step])
            # A part of a step, where a window of streamed rows ends in it, begins in the middle of its micro-batches.
            of_step = ordered[taken : taken + size]
            arranged[start : start + size] = self._dealt(of_step) if size == self._step.rows else of_step
            taken += size
        return arranged

    def _dealt(self, rows: np.ndarray) -> np.ndarray:
        """A whole step's rows, longest first, with every second round of micro-batches dealt to the processes backwards.

        A process that always got the longest one of a round would let the others wait at the end of the step.
        """
        step = self._step
        if self._even:
            # Each micro-batch in turn takes the longest row that is left, every second time in reverse.
            turns = rows.reshape(step.micro_batch, -1).copy()
            turns[1::2] = turns[1::2, ::-1]
            return turns.T.reshape(-1)
        rounds = rows.reshape(-1, step.processes, step.micro_batch) if step.processes > 1 else rows
        if step.processes > 1:
            rounds = rounds.copy()
            rounds[1::2] = rounds[1::2, ::-1]
        return rounds.reshape(-1)
