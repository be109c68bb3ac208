"""A probe: a few real steps of the run in FOLDER with a clock beside them, for `trainwiz bench`.

Model, batches, loss, engine and optimizer are those that train. The weights are random, which changes neither time nor
memory. Nothing is evaluated or saved. The first process writes FOLDER/probe.jsonl, one object a line:

    ready     the first step begins
    warm      seconds, step, micro_batch: a step on the longest batch
    memory    peak_allocated_bytes, peak_reserved_bytes, device_used_bytes, host_rss_bytes, each of the fullest process
    loading   loading_s: in which one process makes one micro-batch of the data
    step      step, seconds (of a step of the plan), own_s (of them the thread had a core; not on a GPU), tokens (over all
              processes), micro_batch
    short     step, seconds: of the last step of an epoch, which has fewer micro-batches
    trial     micro_batch, fits, seconds, allocated_bytes
    largest   micro_batch, why, fails: so far
    rows      rows, why: what the batches are made from, where it is not what was asked for
    end       all was done
"""

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

import torch
from accelerate.utils import gather_object
from trainwiz.core.files import read_small
from trainwiz.core.hardware.nvml import NvmlSession, Unreadable, call
from trainwiz.core.language import tr
from trainwiz.core.launch.probe_order import ANSWERS_JSONL, ON_THE_LONGEST, TURN, ProbeOrder
from trainwiz.core.launch.start import changed_config
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.batches import (
    PaddedBatch,
)
from trainwiz.core.training.callbacks import Moment, RunCallback, any_process
from trainwiz.core.training.engine import begin_process
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.model import (
    may_skip_weights,
    vocabulary_of,
)
from trainwiz.core.training.probe_rows import GeneratedRows, longest_rows, probe_parts
from trainwiz.core.training.tasks import TaskParts
from trainwiz.core.training.trainer import RunTrainer

# What one training process holds: RAM at its most, and the GPU's memory as nvidia-smi counts it.


def peak_rss_bytes() -> int:
    """Of this process, at its most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def device_used_bytes() -> int | None:
    """GPU memory of this process by NVML's count; None where it does not tell (no driver, other name space of pids)."""
    found: list[Any] = []
    with NvmlSession(), suppress(Unreadable):
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle = call("nvmlDeviceGetHandleByUUID", f"GPU-{uuid.removeprefix('GPU-')}")
        found = call("nvmlDeviceGetComputeRunningProcesses", handle)
    # In a container NVML names processes as the host does: one alone is this one.
    mine = [one for one in found if one.pid == os.getpid() or len(found) == 1]
    return mine[0].usedGpuMemory if mine else None


def memory_figures(device: torch.device) -> dict[str, int | None]:
    """As a Measurement has them, those of the GPU None without one; each of the fullest process."""
    cuda = device.type == "cuda"
    own = {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved() if cuda else None,
        "device_used_bytes": device_used_bytes() if cuda else None,
        "host_rss_bytes": peak_rss_bytes(),
    }
    every: list[dict[str, int | None]] = gather_object([own])
    values = {name: [value for one in every if (value := one[name]) is not None] for name in own}
    return {name: max(found, default=None) for name, found in values.items()}


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
    """Gives the longest batch for the first steps, then the rows of the run."""

    longest: Callable[[int], dict[str, Any]]
    """rows -> a batch of full length."""
    micro_batch: int
    warm: int = ON_THE_LONGEST
    window_tokens: int = 0

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        if self.state.global_step < self.warm:
            batch = self.longest(self.micro_batch)
            window = [dict(batch) for _ in range(num_batches)]
        else:
            window = list(islice(epoch_iterator, num_batches))
        self.window_tokens = sum(int(batch["input_ids"].numel()) for batch in window)
        return window, self._labels_of_window(window, device)


class ProbeClock(RunCallback):
    """Times each step, says so, and ends the training when enough is known.

    A step of the plan has `order.accumulation` micro-batches; of a measured one with fewer, the time
    of a micro-batch that does no optimizer step is added for each that is missing.
    """

    def __init__(self, trainer: ProbeTrainer, order: ProbeOrder, answers: Answers) -> None:
        self.steps = 0
        self.last_s = 0.0
        """Wall time of the last step."""
        self._trainer = trainer
        self._order = order
        self._answers = answers
        self._cuda = trainer.args.device.type == "cuda"
        self._marks: list[float] = []
        """When the step began, and when each of its micro-batches but the last was done."""
        self._stops_s: float | None = None
        self._start()

    def _start(self) -> None:
        self._end, self._own_end_s = self._clock(), time.thread_time()

    def train_begin(self, now: Moment) -> None:
        self._answers.say("ready")
        self._wait_for_turn(now)
        self._start()

    def step_begin(self, now: Moment) -> None:
        self._marks = [self._clock()]

    def substep_end(self, now: Moment) -> None:
        self._marks.append(self._clock())

    def step_end(self, now: Moment) -> None:
        self.last_s = self._clock() - self._end
        step = now.state.global_step
        if step <= self._trainer.warm:
            self._warm_step(step)
        elif len(self._marks) == now.args.gradient_accumulation_steps:
            self.steps += 1
            self._answers.say("step", step=step, **self._whole_step())
        else:
            self._answers.say("short", step=step, seconds=self.last_s)
        self._wait_for_turn(now)
        if self._stops_s is not None and self._agreed(time.monotonic() >= self._stops_s or self.steps >= MOST_STEPS):
            now.control.should_training_stop = True
        self._start()

    def _warm_step(self, step: int) -> None:
        left_s = self._order.ends_s - time.monotonic()
        self._answers.say("warm", seconds=self.last_s, step=step, micro_batch=self._trainer.micro_batch)
        if not self._order.in_turns and self._agreed(self.last_s > WARM_SHARE * left_s):
            self._trainer.warm = step
        if step < self._trainer.warm:
            return
        self._answers.say("memory", **memory_figures(self._trainer.args.device))
        if not self._order.in_turns:
            kept_s = SEARCH_SHARE * left_s if self._order.search else 0.0
            self._stops_s = min(time.monotonic() + self._order.measured_s, self._order.ends_s - kept_s)

    def _whole_step(self) -> dict[str, Any]:
        """Seconds of a step of the plan, and tokens of it over all processes, padding included."""
        done, seconds = len(self._marks), self.last_s
        if self._order.accumulation > done > 1:
            # Waiting for rows, and a forward and backward pass without the optimizer.
            waiting_s = (self._marks[0] - self._end) / done
            passing_s = (self._marks[-1] - self._marks[0]) / (done - 1)
            seconds += (self._order.accumulation - done) * (waiting_s + passing_s)
        tokens = self._trainer.window_tokens * self._trainer.args.world_size * self._order.accumulation / done
        figures = {"seconds": seconds, "tokens": tokens, "micro_batch": self._trainer.micro_batch}
        if not self._cuda:
            # What it would have taken alone on the machine: see core/training/rates.py.
            own_s = time.thread_time() - self._own_end_s
            figures["own_s"] = min(seconds, seconds * own_s / max(self.last_s, own_s))
        return figures

    def _wait_for_turn(self, now: Moment) -> None:
        """Every process looks for itself: one that waited in a collective would keep its GPU busy."""
        file = Path(now.args.output_dir or ".") / TURN
        while self._order.in_turns and _allowed(file) <= now.state.global_step:
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


def loading_s(trainer: ProbeTrainer, parts: TaskParts, ends_s: float) -> float | None:
    """Of the rows of the first steps; None for generated ones, which cost what no data does.

    A loader worker does the same work on one core; it is measured after the steps, when nothing else of the probe wants
    the cores.
    """
    args, collate, spent = trainer.args, parts.train_collate or parts.collate, list[float]()
    ends_s, keys = min(time.monotonic() + LOADING_S, ends_s), iter(parts.sampler)
    for _ in range(0 if isinstance(parts.train, GeneratedRows) else 1 + 2 * args.gradient_accumulation_steps):
        of_round = list(islice(keys, trainer.micro_batch * args.world_size))[: trainer.micro_batch]
        if len(of_round) < trainer.micro_batch or time.monotonic() > ends_s:
            break
        start = time.perf_counter()
        collate([parts.train[key] for key in of_round])
        spent.append(time.perf_counter() - start)
    # The first one makes what is made once, such as a tokenizer's caches.
    return sum(spent[1:]) / len(spent[1:]) if len(spent) > 1 else None


# The largest micro-batch that fits: doubling on the longest batch, then halving the gap.

LARGEST = 4096
BISECTIONS = 3
TIME_MARGIN = 1.3
ROUND = 2
"""Micro-batches of a trial: the second meets the gradients of the first."""


def search_largest(trainer: ProbeTrainer, order: ProbeOrder, answers: Answers, trial_s: float) -> None:
    """After the training has ended: tries micro-batches on the trained model, each with an optimizer step, and says
    `largest` with what ended the search.

    `trial_s`: seconds of a trial at the micro-batch of the plan, as far as it is known. A GPU's memory decides, by running
    out of it. A CPU is never asked: a machine without RAM takes everybody's programs down.
    """
    fits, fails, why = trainer.micro_batch, None, ""
    # Several processes, or an engine that shards, are left in the middle of their communication.
    halvings = BISECTIONS if trainer.accelerator.num_processes == 1 and not trainer.is_deepspeed_enabled else 0
    while fails is None or (halvings and fails - fits > max(1, fits // 8)):
        wanted = 2 * fits if fails is None else (fits + fails) // 2
        halvings -= fails is not None
        too_late = time.monotonic() + TIME_MARGIN * trial_s * wanted / fits > order.ends_s
        if wanted > LARGEST:
            why = tr("sizes above {n} are not tried", n=LARGEST)
            break
        # The same in all processes, or one would wait for the others.
        if any_process(trainer.accelerator, too_late):
            why = why or tr("the time limit was reached")
            break
        # The last word where the time ends within the trial.
        answers.say("largest", micro_batch=fits, why=tr("the time limit was reached"), fails=fails)
        started = time.perf_counter()
        fitted = _fits(trainer, wanted, min(ROUND, order.accumulation))
        trial_s = time.perf_counter() - started
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
        answers.say("trial", micro_batch=wanted, fits=fitted, seconds=trial_s, allocated_bytes=peak)
        if fitted:
            fits = wanted
        else:
            fails, why = wanted, tr("{n} does not fit", n=wanted)
    answers.say("largest", micro_batch=fits, why=why, fails=fails)


def _fits(trainer: ProbeTrainer, micro_batch: int, rounds: int) -> bool:
    """Whether a step of `rounds` micro-batches fits, in every process."""
    cuda, model, fits = torch.cuda.is_available(), trainer.model_wrapped, True
    trainer.micro_batch = micro_batch
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        _step(trainer, model, rounds)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        fits = False
    # Beyond the handler: the exception's frames hold the tensors.
    fits = not any_process(trainer.accelerator, not fits)
    model.zero_grad(set_to_none=True)
    gc.collect()
    if cuda:
        torch.cuda.synchronize()
    return fits


def _step(trainer: ProbeTrainer, model: Any, rounds: int) -> None:
    model.train()
    batch, optimizer = trainer.longest(trainer.micro_batch), trainer.optimizer
    for number in range(rounds):
        trainer.accelerator.gradient_state._set_sync_gradients(number == rounds - 1)
        trainer.training_step(model, dict(batch))
    assert optimizer is not None
    optimizer.step()


# A probe from its order to its last answer.


def run_probe(folder: Path) -> None:
    config, order = changed_config(RunFolder(folder)), ProbeOrder.read(folder)
    args = begin_process(config)
    args.eval_strategy = args.save_strategy = "no"
    args.report_to = []
    args.logging_first_step = False
    answers = Answers(folder, args.process_index == 0)
    parts = probe_parts(config, folder, order, args.device, answers.say)
    args.ddp_find_unused_parameters = may_skip_weights(parts.model)
    trainer = ProbeTrainer(args, parts, StepMeter())
    kind, vocabulary, collate = config.row_kind, vocabulary_of(parts.model), parts.train_collate or PaddedBatch(0)
    trainer.longest = lambda rows: collate(longest_rows(order, kind, vocabulary, rows))
    trainer.micro_batch = order.micro_batch
    clock = ProbeClock(trainer, order, answers)
    trainer.add_callback(clock)
    if args.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        trainer.train()
    finally:
        trainer.shield.over()
    if not order.in_turns and (seconds := loading_s(trainer, parts, order.ends_s)) is not None:
        answers.say("loading", loading_s=seconds)
    if order.search:
        rounds = min(ROUND, order.accumulation)
        search_largest(trainer, order, answers, clock.last_s / args.gradient_accumulation_steps * rounds)
    answers.say("end")
