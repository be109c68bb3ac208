"""StepMeter: tokens, time and waiting of this process, measured where they happen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from trainwiz.core.training.batches import FILLER_TOKENS
from trainwiz.core.training.masking import IGNORED


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over the optimizer steps since the last reading."""

    steps: int
    step_s: float
    """Wall time of one step, without evaluation and saving."""
    data_wait_s: float
    """Time of one step in which the loader had no batch ready."""


class StepMeter:
    """Counts for one process. A window that was fetched counts when its optimizer step is done.

    `tokens` and `real_tokens` (without padding and rows that fill up) are those of the input, as plans count them. Where
    the labels are a text of their own (seq2seq), theirs are counted apart.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.real_tokens = 0
        self.target_tokens = 0
        self.real_target_tokens = 0
        self.counts_targets = False
        self._fetched_tokens = 0
        self._fetched_targets = 0
        self._fetched_real: list[torch.Tensor | int] = []
        self._fetched_real_targets: list[torch.Tensor] = []
        self._steps = 0
        self._wait_s = 0.0
        self._paused_s = 0.0
        self._since: float | None = None

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches, with the time that each is waited for and the tokens that it holds."""
        while True:
            start = time.perf_counter()
            if self._since is None:
                self._since = start
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._wait_s += time.perf_counter() - start
            self._fetched_tokens += batch["input_ids"].numel()
            # Summed on the device and read at the next log: no synchronisation here.
            mask, fillers = batch.get("attention_mask"), batch.pop(FILLER_TOKENS, 0)
            # Rows end to end have no mask: all of them is real.
            self._fetched_real.append((mask.sum() if mask is not None else batch["input_ids"].numel()) - fillers)
            if self.counts_targets:
                self._fetched_targets += batch["labels"].numel()
                self._fetched_real_targets.append((batch["labels"] != IGNORED).sum())
            yield batch

    def step_done(self) -> None:
        self._steps += 1
        self.tokens += self._fetched_tokens
        self.real_tokens += sum(int(count) for count in self._fetched_real)
        self.target_tokens += self._fetched_targets
        self.real_target_tokens += sum(int(count) for count in self._fetched_real_targets)
        self._fetched_tokens = self._fetched_targets = 0
        self._fetched_real, self._fetched_real_targets = [], []

    def counts(self) -> dict[str, int]:
        """Name in metrics.jsonl -> tokens of this process in the steps that are done."""
        counts = {"tokens": self.tokens, "real_tokens": self.real_tokens}
        if self.counts_targets:
            counts |= {"target_tokens": self.target_tokens, "real_target_tokens": self.real_target_tokens}
        return counts

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here (evaluation, saving) is no step time."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused_s += time.perf_counter() - start

    def read_pace(self) -> Pace:
        """The pace since the last call; the device's queue should be empty."""
        now = time.perf_counter()
        steps = max(self._steps, 1)
        elapsed = now - (self._since if self._since is not None else now) - self._paused_s
        pace = Pace(self._steps, max(elapsed, 0.0) / steps, self._wait_s / steps)
        self._since, self._steps, self._wait_s, self._paused_s = now, 0, 0.0, 0.0
        return pace
