"""Memory that the C library keeps for later, given back to the system before it is more than the training."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.solved import runs_on_cpu
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

STATM = Path("/proc/self/statm")
ROOM, ROOM_OF_STEP = 1.5, 1.05
"""Of what the first micro-batches leave resident: the most before memory is given back, within a step and at its end. Where
rows are arranged by length the next micro-batch is the largest then."""
FAULTED_BYTES_PER_S = 1.3e9
"""Memory that was given back costs time when it is touched again: so much of it a second on a server of 2024."""
MOST_TIME = 1 / 30
"""Of the training, spent on that."""
FIRST_MICRO_BATCHES = 16
"""As many show what a step needs; the longest are among them where rows are arranged by length."""


def memory_callbacks(config: RunConfig) -> list[TrainerCallback]:
    """KeptMemory for a training on the CPU, where the C library can give memory back (glibc)."""
    give_back = malloc_trim() if runs_on_cpu(config) else None
    return [] if give_back is None else [KeptMemory(give_back)]


class KeptMemory(TrainerCallback):
    """Gives freed memory back once a process holds more than its first micro-batches left.

    For each new length of rows oneDNN, with which CPUs compute in half precision, keeps small blocks. Freed activations that
    lie between them are not used again by glibc, so a process grows with each step: ESM-2 8M in bf16, 20 rows of up to 512
    tokens, from 2.2 GiB after its first step to 5 and 8 GiB (docs/environment.md).
    """

    def __init__(self, give_back: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._give_back = give_back
        self._clock = clock
        self._rests_until = -inf
        self._seen = 0
        """Micro-batches."""
        self._usual = 0
        """Bytes: the most that was resident after one of the first micro-batches, later what could not be given back."""

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._look(ROOM)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._look(ROOM_OF_STEP)

    def _look(self, room: float) -> None:
        resident = resident_bytes()
        self._seen += 1
        if self._seen <= FIRST_MICRO_BATCHES:
            self._usual = max(self._usual, resident)
        elif resident > room * self._usual and self._clock() >= self._rests_until:
            self._give_back()
            stays = resident_bytes()
            # What stays is in use: from here on it is the usual.
            self._usual = max(self._usual, stays)
            costs_s = max(0, resident - stays) / FAULTED_BYTES_PER_S
            self._rests_until = self._clock() + costs_s / MOST_TIME


def resident_bytes() -> int:
    """Of this process, without its children. Linux only."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def malloc_trim() -> Callable[[], object] | None:
    """glibc's malloc_trim(0), which frees whole pages in the middle of the heap too; None where there is none."""
    if not STATM.exists():
        return None
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if function is None else lambda: function(ctypes.c_size_t(0))
