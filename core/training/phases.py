"""Phases: phase.json as the training goes from one kind of work to the next.

One for each process, so that code deep inside (a tokenizer that is being made) can say what it does
without being handed a folder: `begin` it once, then `enter`, `during` and `tell`. Rank 0 writes; how
far work has come that only one process does, whichever comes first, is told by that one
(`whoever=True`). Outside a run, as in a probe, nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.phase import Phase, write_phase
from trainwiz.core.training.failure import note_phase, rank_of_this_process
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

DETAIL_EVERY_S = 2.0
"""How far a long work has come is written at most this often."""


class Phases:
    """What this process does now. Never raises: a phase that cannot be written must not end a run."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        self.now: Phase = "preparing"
        self.step: int | None = None
        self._writes = False
        self._since_s = time.time()
        self._next_detail = 0.0

    def begin(self, folder: RunFolder) -> None:
        self.folder = folder
        self._writes = rank_of_this_process() == 0
        self.step = None
        self.enter("preparing")

    def enter(self, phase: Phase, step: int | None = None, detail: str = "") -> None:
        """From now on it is `phase`. `step`: optimizer steps done; the last number known without it."""
        self.now, self._since_s = phase, time.time()
        note_phase(phase)
        self.step = self.step if step is None else step
        if self._writes:
            self._write(detail)

    @contextmanager
    def during(self, phase: Phase, step: int | None = None, detail: str = "") -> Iterator[None]:
        """`phase` inside the block; after it what was before. After an error nothing more is said."""
        before = self.now
        self.enter(phase, step, detail)
        yield
        self.enter(before)

    def tell(self, detail: str, *, whoever: bool = False) -> None:
        """How far the present work has come, for people. Called as often as one likes."""
        now = time.monotonic()
        if now >= self._next_detail and (self._writes or whoever):
            self._next_detail = now + DETAIL_EVERY_S
            self._write(detail)

    def _write(self, detail: str) -> None:
        if self.folder is not None:
            # The training goes on without it where the disk is full.
            with suppress(OSError):
                write_phase(self.folder, self.now, self.step, detail, self._since_s)


phases = Phases()
"""Of this process."""


class PhaseCallback(TrainerCallback):
    """Training begins, and with torch.compile its first step compiles."""

    def __init__(self, compiles: bool) -> None:
        self._compiles = compiles

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        phases.enter("compiling" if self._compiles else "training", state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        phases.step = state.global_step
        if phases.now == "compiling":
            phases.enter("training")
