"""What a training does now, how it is stopped, and how torch is set for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.run.attempts import Phase, write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.failure import note_phase, rank_of_this_process
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# Phases: phase.json as the training goes from one kind of work to the next.
#
# One for each process, so that code deep inside (a tokenizer that is being made) can say what it does
# without being handed a folder: `begin` it once, then `enter`, `during` and `tell`. Rank 0 writes; how
# far work has come that only one process does, whichever comes first, is told by that one
# (`whoever=True`). Outside a run, as in a probe, nothing is written.

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


# A stop that keeps the work: the first signal asks for a checkpoint, a later second one ends at once.

SAME_REQUEST_S = 3.0
"""A supervisor and torchrun may both pass on the same stop; a signal within this time is no second one."""


@dataclass(slots=True)
class StopRequest:
    """Whether this process was asked to stop (SIGTERM or SIGINT)."""

    asked_at: float | None = None

    @classmethod
    def install(cls) -> StopRequest:
        request = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._handle)
        return request

    @property
    def requested(self) -> bool:
        return self.asked_at is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked_at is None:
            self.asked_at = now
        elif now - self.asked_at > SAME_REQUEST_S:
            os._exit(128 + number)


# torch.compile for batches of every length.


def allow_any_length(config: RunConfig) -> None:
    """Let torch.compile find out that lengths change; called before the Trainer reads its environment.

    `accelerate launch` exports `dynamic=False`, which compiles anew for each padded length and after
    eight of them computes uncompiled, with only a warning (torch 2.13, accelerate 1.15).
    """
    if config.engine.compile:
        os.environ.pop("ACCELERATE_DYNAMO_USE_DYNAMIC", None)


# multiplies_in_tf32: whether matrix products of fp32 numbers are taken in TF32 now.


def multiplies_in_tf32(device: torch.device) -> bool:
    """Of `device`. From torch 2.9 on transformers sets `fp32_precision`, and the older `allow_tf32` cannot be read then."""
    if device.type != "cuda":
        return False
    products = torch.backends.cuda.matmul
    precision = getattr(products, "fp32_precision", None)
    return bool(products.allow_tf32) if precision is None else precision == "tf32"
