"""The largest micro-batch by trying."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from trainwiz.core.language import tr
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.datasets import TaskParts
from trainwiz.core.training.probe_rows import GeneratedRows
from trainwiz.core.training.probe_trainer import Answers, ProbeTrainer, is_out_of_memory, peak_rss_bytes

# The time in which one process makes one micro-batch: reads, cuts, masks and pads its rows.

MOST_S = 2.0
"""Of the probe's time."""


def say_loading(
    parts: TaskParts, micro_batch: int, rounds: int, processes: int, order: ProbeOrder, answers: Answers
) -> None:
    """`micro_batch`: what fitted, which may be less than ordered. `rounds`: micro-batches of each process in a step of the
    probe, whose rows are those of the first steps.

    Nothing is said of generated rows, which cost what no data does. A loader worker does the same work on one core;
    it is measured after the steps, when nothing else of the probe wants the cores.
    """
    if isinstance(parts.train, GeneratedRows):
        return
    collate = parts.train_collate or parts.collate
    ends_s = min(time.monotonic() + MOST_S, order.ends_s)
    keys, spent, made = iter(parts.sampler), 0.0, 0
    for number in range(1 + 2 * rounds):
        of_round = list(islice(keys, micro_batch * processes))[:micro_batch]
        if len(of_round) < micro_batch or time.monotonic() > ends_s:
            break
        start = time.perf_counter()
        collate([parts.train[key] for key in of_round])
        if number:
            # The first one makes what is made once, such as a tokenizer's caches.
            spent, made = spent + time.perf_counter() - start, made + 1
    if made:
        answers.say("loading", seconds=spent / made)


# The largest micro-batch that fits: doubling on the longest batch, then halving the gap.

LARGEST = 4096
BISECTIONS = 3
TIME_MARGIN = 1.3
RAM_SHARE = 0.8
"""Of the RAM that is free: the kernel ends programs before all of it is gone."""
ROUND = 2
"""Micro-batches of a trial: the second meets the gradients of the first."""


class MicroBatchSearch:
    """After the training has ended: tries micro-batches on the trained model, each with an optimizer step.

    On a GPU the memory decides, by running out of it; on a CPU the RAM that is left and what the
    trials so far took of it, because a machine without RAM takes everybody's programs down.
    """

    def __init__(self, trainer: ProbeTrainer, order: ProbeOrder, answers: Answers, first_s: float) -> None:
        """`first_s`: seconds of a trial at the micro-batch of the plan, as far as it is known."""
        self._trainer = trainer
        self._order = order
        self._answers = answers
        self._cuda = trainer.args.device.type == "cuda"
        self._trial_s = first_s
        self._rss: list[tuple[int, int]] = [(trainer.micro_batch, peak_rss_bytes())]

    def run(self) -> None:
        """Says `largest` with the micro-batch and what ended the search."""
        fits = self._trainer.micro_batch
        fails = self._trainer.out_of_memory_at
        why = tr("it does not fit") if fails is not None else ""
        while fails is None and not why:
            wanted = 2 * fits
            why = self._reason_against(wanted, fits)
            if why:
                break
            if self._fits(wanted):
                fits = wanted
            else:
                fails, why = wanted, tr("{n} does not fit", n=wanted)
        for _ in range(BISECTIONS):
            if fails is None or fails - fits <= max(1, fits // 8) or not self._may_go_on():
                break
            middle = (fits + fails) // 2
            if self._reason_against(middle, fits):
                break
            if self._fits(middle):
                fits = middle
            else:
                fails, why = middle, tr("{n} does not fit", n=middle)
        self._answers.say("largest", micro_batch=fits, why=why, fails=fails)

    def _may_go_on(self) -> bool:
        # An engine that shards is left in the middle of its communication.
        return self._trainer.accelerator.num_processes == 1 and not self._trainer.is_deepspeed_enabled

    def _reason_against(self, micro_batch: int, before: int) -> str:
        """Empty where all processes may try it; the same in all of them, or one would wait for the others."""
        too_late = time.monotonic() + TIME_MARGIN * self._trial_s * micro_batch / before > self._order.ends_s
        limit = self._rss[0][1] + RAM_SHARE * self._order.host_free_bytes
        if micro_batch > LARGEST:
            return tr("no more than {n} are looked for", n=LARGEST)
        if self._any_process(too_late):
            return tr("the time was up")
        if self._any_process(not self._cuda and self._rss_of(micro_batch) > limit):
            return tr("{n} would need more RAM than is free", n=micro_batch)
        return ""

    def _any_process(self, mine: bool) -> bool:
        accelerator = self._trainer.accelerator
        if accelerator.num_processes == 1:
            return mine
        flag = torch.tensor([int(mine)], device=accelerator.device)
        return bool(accelerator.reduce(flag, reduction="sum").item() > 0)

    def _rss_of(self, micro_batch: int) -> float:
        """Expected peak: the line through the last two trials, or all of the process for the first."""
        size, peak = self._rss[-1]
        if len(self._rss) < 2:
            return peak * micro_batch / size
        other_size, other = self._rss[-2]
        return peak + (peak - other) / (size - other_size) * (micro_batch - size)

    def _fits(self, micro_batch: int) -> bool:
        started = time.perf_counter()
        fits = not self._any_process(not _survives(lambda: self._step(micro_batch)))
        if not fits:
            self._forget()
        if self._cuda:
            torch.cuda.synchronize()
        self._trial_s = time.perf_counter() - started
        peak = int(torch.cuda.max_memory_allocated()) if self._cuda else None
        if fits and not self._cuda:
            self._rss.append((micro_batch, peak_rss_bytes()))
        self._answers.say("trial", micro_batch=micro_batch, fits=fits, seconds=self._trial_s, allocated_bytes=peak)
        return fits

    def _step(self, micro_batch: int) -> None:
        trainer = self._trainer
        trainer.micro_batch = micro_batch
        if self._cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        model: Any = trainer.model_wrapped
        model.train()
        batch = trainer.longest(micro_batch)
        rounds = min(ROUND, self._order.accumulation)
        for number in range(rounds):
            trainer.accelerator.gradient_state._set_sync_gradients(number == rounds - 1)
            trainer.training_step(model, dict(batch))
        optimizer: Any = trainer.optimizer
        optimizer.step()
        model.zero_grad()

    def _forget(self) -> None:
        model: Any = self._trainer.model_wrapped
        model.zero_grad(set_to_none=True)
        gc.collect()
        if self._cuda:
            torch.cuda.empty_cache()


def _survives(step: Callable[[], None]) -> bool:
    try:
        step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
