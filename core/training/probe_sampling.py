"""SpreadSampler: of each step of the plan, a few micro-batches that stand for all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from trainwiz.core.data.length_order import StepShape
from trainwiz.core.training.sampling import EpochSampler, RowKey

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, less their whole part, fill the range from 0 to 1 evenly (Kronecker sequence)."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rounds of one step of the plan: the longest row of each, in any unit."""

    measured: tuple[float, ...]
    """Of those that the probe computes, in their order."""
    missing: tuple[float, ...]

    @property
    def whole(self) -> float:
        """Tokens of all rounds over those of the measured ones."""
        measured = sum(self.measured)
        return (measured + sum(self.missing)) / measured if measured else 1.0


class SpreadSampler(EpochSampler):
    """The rows of an EpochSampler, of each step only some rounds (a micro-batch for each process), evenly spread.

    Where a step is arranged by length its first micro-batches are its longest.
    """

    def __init__(
        self, sampler: EpochSampler, step: StepShape, rounds: int, lengths: Callable[[], np.ndarray] | None = None
    ) -> None:
        """`step` of the plan; `rounds` of a probe's own step; `lengths` (rows,) of all rows, where they decide the order."""
        self.parts: deque[Part] = deque()
        """Of the steps that were handed out, the oldest first; empty where all are whole. The clock takes them away."""
        self._lengths_of_rows = lengths
        self._sampler = sampler
        self._together = step.micro_batch * step.processes
        self._accumulation = max(1, step.rows // self._together)
        self._rounds = min(rounds, self._accumulation)

    def start_epoch(self, epoch: int) -> None:
        self._sampler.start_epoch(epoch)

    def fill_up(self, rows_of_all_processes: int) -> None:
        self._sampler.fill_up(rows_of_all_processes)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._sampler), self._together * self._accumulation)
        if whole or self._rounds == self._accumulation:
            return whole * self._rounds * self._together + (rest if self._rounds == self._accumulation else 0)
        return rest

    def __iter__(self) -> Iterator[RowKey]:
        if len(self) == len(self._sampler):
            yield from self._sampler
            return
        self.parts.clear()
        rows, spacing = iter(self._sampler), self._accumulation / self._rounds
        for step in range(len(self._sampler) // (self._together * self._accumulation)):
            # From step to step at other places between two of them: the longest micro-batches are far apart.
            shift = (0.5 + step * GOLDEN) % 1
            chosen = {int((one + shift) * spacing) for one in range(self._rounds)}
            rounds = [list(islice(rows, self._together)) for _ in range(self._accumulation)]
            longest = self._longest(rounds)
            self.parts.append(
                Part(
                    tuple(each for number, each in enumerate(longest) if number in chosen),
                    tuple(each for number, each in enumerate(longest) if number not in chosen),
                )
            )
            for number in sorted(chosen):
                yield from rounds[number]

    def _longest(self, rounds: list[list[RowKey]]) -> list[float]:
        """Of each round; all alike where lengths do not decide the order."""
        if self._lengths_of_rows is None:
            return [1.0] * len(rounds)
        lengths = self._lengths_of_rows()
        return [float(max((lengths[row] for _, row in rows if row >= 0), default=0)) for rows in rounds]
