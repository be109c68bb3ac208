"""The trainer of a probe: its clock, its memory, its search for the largest micro-batch."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.launch.probe_order import ANSWERS_JSONL, ON_THE_LONGEST, TURN, ProbeOrder
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.batches import ROW_ENDS, PaddedBatch
from trainwiz.core.training.callbacks import Moment, RunCallback, any_process
from trainwiz.core.training.engine import begin_process
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.model import may_skip_weights, vocabulary_of
from trainwiz.core.training.probe_rows import GeneratedRows, longest_batch, probe_parts
from trainwiz.core.training.process import read_config
from trainwiz.core.training.tasks import TaskParts
from trainwiz.core.training.trainer import RunTrainer
from transformers import TrainerState, TrainingArguments

# What one training process holds: RAM at its most, and the GPU's memory as nvidia-smi counts it.


def peak_rss_bytes() -> int:
    """Of this process, at its most so far."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    # Inherited from the parent where that was larger, so the second choice.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def device_used_bytes() -> int | None:
    """GPU memory of this process by NVML's count; None where it does not tell (no driver, other name space of pids)."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # noqa: BLE001 - NVML raises its own kinds, and no figure is no failure
        return None
    mine = [one for one in found if one.pid == os.getpid()]
    # In a container NVML names processes as the host does: one alone is this one.
    one = mine[0] if mine else found[0] if len(found) == 1 else None
    return None if one is None or one.usedGpuMemory is None else int(one.usedGpuMemory)


def memory_figures(device: torch.device) -> dict[str, int | None]:
    """allocated_bytes, reserved_bytes and used_bytes of the GPU (None without one), rss_bytes, of this process."""
    cuda = device.type == "cuda"
    return {
        "allocated_bytes": int(torch.cuda.max_memory_allocated()) if cuda else None,
        "reserved_bytes": int(torch.cuda.max_memory_reserved()) if cuda else None,
        "used_bytes": device_used_bytes() if cuda else None,
        "rss_bytes": peak_rss_bytes(),
    }


# ProbeTrainer and ProbeClock: the run's own steps with a clock beside them.

WARM_SHARE = 0.25
"""Of the time left; a first step that takes more is the only one before the clock starts."""
SEARCH_SHARE = 0.35
"""Of the time left after the first steps, kept for the search for the largest micro-batch."""
MOST_STEPS = 400
LOOK_EVERY_S = 0.002
"""Of a process that waits for its turn."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Of the device; libraries behind torch say it in a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower()


class Answers:
    """probe.jsonl: lines of the first process."""

    def __init__(self, folder: Path, writes: bool) -> None:
        self._path = folder / ANSWERS_JSONL
        self._writes = writes

    def say(self, event: str, **values: Any) -> None:
        if self._writes:
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"event": event, "time_s": time.monotonic(), **values}) + "\n")


class ProbeTrainer(RunTrainer):
    """Gives the longest batch for the first steps, then the rows of the run.

    Where the GPU runs out of memory in the first step, the micro-batch is halved until it fits.
    """

    longest: Callable[[int], dict[str, torch.Tensor]]
    """rows -> a batch of full length."""
    micro_batch: int
    warm: int = ON_THE_LONGEST
    halves: bool = True
    """A micro-batch that does not fit in the first step; rows that lie end to end are not taken apart again."""
    out_of_memory_at: int | None = None
    """The smallest micro-batch that did not fit."""
    window_tokens: int = 0

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        if self.state.global_step < self.warm:
            batch = self.longest(self.micro_batch)
            window = [dict(batch) for _ in range(num_batches)]
        else:
            window = [self._cut(batch) for batch in islice(self._meter.timed(epoch_iterator), num_batches)]
        self.window_tokens = sum(int(batch["input_ids"].numel()) for batch in window)
        return window, self._labels_of_window(window, device)

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        loss: torch.Tensor | None = None
        while loss is None:
            try:
                loss = super().training_step(model, self._cut(inputs), num_items_in_batch)
            except RuntimeError as error:
                alone = self.accelerator.num_processes == 1 and self.micro_batch > 1
                if not (self.halves and alone and is_out_of_memory(error)) or self.state.global_step:
                    raise
            if loss is None:
                # Beyond the handler: the exception's frames hold the tensors.
                self.out_of_memory_at, self.micro_batch = self.micro_batch, self.micro_batch // 2
                model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
        return loss

    def _cut(self, batch: dict[str, Any]) -> dict[str, Any]:
        if ROW_ENDS[0] in batch or len(batch["input_ids"]) <= self.micro_batch:
            return batch
        return {name: value[: self.micro_batch] for name, value in batch.items()}


class ProbeClock(RunCallback):
    """Times each step, says so, and ends the training when enough is known.

    A step of the plan has `order.accumulation` micro-batches; of a measured one with fewer, the time
    of a micro-batch that does no optimizer step is added for each that is missing.
    """

    def __init__(self, trainer: ProbeTrainer, order: ProbeOrder, answers: Answers, memory: Callable[[], None]) -> None:
        self.steps = 0
        self.last_s = 0.0
        """Wall time of the last step."""
        self._trainer = trainer
        self._order = order
        self._answers = answers
        self._memory = memory
        self._cuda = trainer.args.device.type == "cuda"
        # In the last pass several processes also add up their gradients, and DeepSpeed does the optimizer's step.
        self._marks_last = trainer.args.world_size == 1 and not trainer.is_deepspeed_enabled
        self._end = time.perf_counter()
        self._begin = self._end
        self._own_end_s = time.thread_time()
        self._marks: list[float] = []
        self._stops_s: float | None = None

    def train_begin(self, now: Moment) -> None:
        self._answers.say("ready")
        self._wait_for_turn(now.state)
        self._end, self._own_end_s = self._clock(), time.thread_time()

    def step_begin(self, now: Moment) -> None:
        self._begin, self._marks = self._clock(), []

    def substep_end(self, now: Moment) -> None:
        self._marks.append(self._clock())

    def pre_optimizer_step(self, now: Moment) -> None:
        if self._marks_last:
            self._marks.append(self._clock())

    def step_end(self, now: Moment) -> None:
        end = self._clock()
        self.last_s = end - self._end
        step, rounds = now.state.global_step, now.args.gradient_accumulation_steps
        if step <= self._trainer.warm:
            self._warm_step(now.state)
        elif len(self._marks) + (not self._marks_last) == rounds:
            self.steps += 1
            self._answers.say("step", step=step, **self._whole_step(end, now.args))
        else:
            self._answers.say("short", step=step, seconds=self.last_s)
        if self._order.in_turns:
            self._wait_for_turn(now.state)
        elif self._stops_s is not None and self._agreed(time.monotonic() >= self._stops_s or self.steps >= MOST_STEPS):
            now.control.should_training_stop = True
        self._end, self._own_end_s = self._clock(), time.thread_time()

    def _warm_step(self, state: TrainerState) -> None:
        left = self._order.ends_s - time.monotonic()
        self._answers.say("warm", seconds=self.last_s, step=state.global_step, micro_batch=self._trainer.micro_batch)
        if not self._order.in_turns and self._agreed(self.last_s > WARM_SHARE * left):
            self._trainer.warm = state.global_step
        if state.global_step >= self._trainer.warm:
            self._memory()
            share = SEARCH_SHARE if self._order.search else 0.0
            self._stops_s = min(time.monotonic() + self._order.measured_s, self._order.ends_s - share * left)

    def _whole_step(self, end: float, args: TrainingArguments) -> dict[str, Any]:
        """Seconds of a step of the plan, and tokens of it over all processes, padding included."""
        done, missing = args.gradient_accumulation_steps, self._order.accumulation - args.gradient_accumulation_steps
        seconds = end - self._end
        if missing > 0:
            # Waiting for rows, and a forward and backward pass without the optimizer.
            waiting = (self._begin - self._end) / done
            passes = np.diff([self._begin, *self._marks])
            seconds += missing * (waiting + (float(passes.mean()) if len(passes) else 0.0))
        tokens = self._trainer.window_tokens * args.world_size * self._order.accumulation / done
        figures = {"seconds": seconds, "tokens": tokens, "micro_batch": self._trainer.micro_batch}
        if not self._cuda:
            # What it would have taken alone on the machine: see core/training/rates.py.
            own_s = time.thread_time() - self._own_end_s
            figures["own_s"] = min(seconds, seconds * own_s / max(self.last_s, own_s))
        return figures

    def _wait_for_turn(self, state: TrainerState) -> None:
        """Every process looks for itself: one that waited in a collective would keep its GPU busy."""
        file = Path(self._trainer.args.output_dir or ".") / TURN
        while self._order.in_turns and _allowed(file) <= state.global_step:
            time.sleep(LOOK_EVERY_S)

    def _clock(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _agreed(self, mine: bool) -> bool:
        """What the first process says: every process must stop at the same step."""
        accelerator = self._trainer.accelerator
        return any_process(accelerator, mine and accelerator.is_main_process)


def _allowed(file: Path) -> int:
    """Steps in all; none before the file is there."""
    try:
        return int(read_small(file).decode())
    except (OSError, ValueError):
        return 0


# The time in which one process makes one micro-batch: reads, cuts, masks and pads its rows.

LOADING_S = 2.0
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
    ends_s = min(time.monotonic() + LOADING_S, order.ends_s)
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
ROUND = 2
"""Micro-batches of a trial: the second meets the gradients of the first."""


class MicroBatchSearch:
    """After the training has ended: tries micro-batches on the trained model, each with an optimizer step.

    A GPU's memory decides, by running out of it. A CPU is never asked: a machine without RAM takes everybody's programs down.
    """

    def __init__(self, trainer: ProbeTrainer, order: ProbeOrder, answers: Answers, first_s: float) -> None:
        """`first_s`: seconds of a trial at the micro-batch of the plan, as far as it is known."""
        self._trainer = trainer
        self._order = order
        self._answers = answers
        self._cuda = trainer.args.device.type == "cuda"
        self._trial_s = first_s

    def run(self) -> None:
        """Says `largest` with the micro-batch and what ended the search."""
        fits = self._trainer.micro_batch
        fails = self._trainer.out_of_memory_at
        why, halved = tr("it does not fit") if fails is not None else "", 0
        # An engine that shards is left in the middle of its communication.
        alone = self._trainer.accelerator.num_processes == 1 and not self._trainer.is_deepspeed_enabled
        while fails is None or (alone and halved < BISECTIONS and fails - fits > max(1, fits // 8)):
            wanted = 2 * fits if fails is None else (fits + fails) // 2
            halved += fails is not None
            if against := self._reason_against(wanted, fits):
                why = why or against
                break
            if self._fits(wanted):
                fits = wanted
            else:
                fails, why = wanted, tr("{n} does not fit", n=wanted)
        self._answers.say("largest", micro_batch=fits, why=why, fails=fails)

    def _reason_against(self, micro_batch: int, before: int) -> str:
        """Empty where all processes may try it; the same in all of them, or one would wait for the others."""
        too_late = time.monotonic() + TIME_MARGIN * self._trial_s * micro_batch / before > self._order.ends_s
        if micro_batch > LARGEST:
            return tr("sizes above {n} are not tried", n=LARGEST)
        if any_process(self._trainer.accelerator, too_late):
            return tr("the time limit was reached")
        return ""

    def _fits(self, micro_batch: int) -> bool:
        started = time.perf_counter()
        fits = True
        try:
            self._step(micro_batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        # Beyond the handler: the exception's frames hold the tensors.
        fits = not any_process(self._trainer.accelerator, not fits)
        if not fits:
            model: Any = self._trainer.model_wrapped
            model.zero_grad(set_to_none=True)
            gc.collect()
            if self._cuda:
                torch.cuda.empty_cache()
        if self._cuda:
            torch.cuda.synchronize()
        self._trial_s = time.perf_counter() - started
        peak = int(torch.cuda.max_memory_allocated()) if self._cuda else None
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


# A probe from its order to its last answer.


def run_probe(folder: Path) -> None:
    config, order = read_config(RunFolder(folder)), ProbeOrder.read(folder)
    args = begin_process(config)
    args.eval_strategy = args.save_strategy = "no"
    args.report_to = []
    args.logging_first_step = False
    answers = Answers(folder, args.process_index == 0)
    parts = probe_parts(config, folder, order, args.device, answers.say)
    args.ddp_find_unused_parameters = may_skip_weights(parts.model)
    trainer = ProbeTrainer(args, parts, StepMeter())
    vocabulary = vocabulary_of(parts.model)
    trainer.longest = lambda rows: longest_batch(
        order, config.row_kind, vocabulary, rows, parts.train_collate or PaddedBatch(0)
    )
    trainer.micro_batch = order.micro_batch
    trainer.halves = not order.in_turns and parts.train_collate is None

    def say_memory() -> None:
        every: list[dict[str, int | None]] = gather_object([memory_figures(args.device)])
        fullest = {
            name: max((one for figures in every if (one := figures[name]) is not None), default=None)
            for name in every[0]
        }
        answers.say("memory", **fullest)

    clock = ProbeClock(trainer, order, answers, say_memory)
    trainer.add_callback(clock)
    if args.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        trainer.train()
    finally:
        trainer.shield.over()
    if not order.in_turns:
        say_loading(parts, trainer.micro_batch, args.gradient_accumulation_steps, args.world_size, order, answers)
    if order.search:
        rounds = min(2, order.accumulation)
        MicroBatchSearch(trainer, order, answers, clock.last_s / args.gradient_accumulation_steps * rounds).run()
    answers.say("end")
