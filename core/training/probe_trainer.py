"""The trainer of a probe: passes and memory."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainwiz.core.files import read_small
from trainwiz.core.launch.probe_order import ANSWERS_JSONL, ON_THE_LONGEST, TURN, ProbeOrder
from trainwiz.core.training.packing import ROW_LENGTHS, first_rows
from trainwiz.core.training.probe_rows import Part, SpreadSampler
from trainwiz.core.training.trainer import RunTrainer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# Passes: how long a micro-batch takes by its length, from those that were measured.


class Passes:
    """A line through all passes so far (least squares): seconds by the length of the longest row."""

    def __init__(self) -> None:
        self._lengths: list[float] = []
        self._seconds: list[float] = []

    def missing_s(self, seconds: Sequence[float] | np.ndarray, part: Part | None, missing: int) -> float:
        """Seconds of the rounds of a step that were not computed.

        `seconds` (n,) of its first passes: the last one has the optimizer's step in it. The rounds of a
        step that is arranged by length get shorter, so the mean of the first ones would be too much.
        Without `part` the `missing` rounds take what the measured ones take.
        """
        if not len(seconds):
            return 0.0
        if part is None or len(part.measured) <= len(seconds):
            return missing * float(np.mean(seconds))
        lengths = np.asarray(part.measured[: len(seconds)])
        self._lengths += lengths.tolist()
        self._seconds += [float(one) for one in seconds]
        slope, start = self._line()
        fitted = (start + slope * lengths).sum()
        wanted = (start + slope * np.asarray(part.missing)).sum()
        # The shape is that of all steps, the pace that of this one.
        return float(np.sum(seconds) * wanted / fitted) if fitted > 0 else missing * float(np.mean(seconds))

    def _line(self) -> tuple[float, float]:
        """(seconds for each unit of length, seconds at none); flat where all are of one length.

        Never below 0 at none: attention bends the line, and the short rounds are beyond its measured end.
        """
        lengths, seconds = np.asarray(self._lengths), np.asarray(self._seconds)
        spread = lengths - lengths.mean()
        variance = float((spread**2).sum())
        slope = max(0.0, float((spread * seconds).sum()) / variance) if variance > 0 else 0.0
        start = float(seconds.mean()) - slope * float(lengths.mean())
        return (slope, start) if start >= 0 else (float((lengths * seconds).sum() / (lengths**2).sum()), 0.0)


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
    """A micro-batch that does not fit in the first step."""
    out_of_memory_at: int | None = None
    """The smallest micro-batch that did not fit."""
    window_tokens: int = 0
    step_loss: torch.Tensor | float = 0.0
    """Of the micro-batches since the clock last took it, as this process adds them up."""

    def next_part(self) -> Part | None:
        """Of the step that has just been done; None where the rows are those of whole steps."""
        sampler = self._parts.sampler
        return sampler.parts.popleft() if isinstance(sampler, SpreadSampler) and sampler.parts else None

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
        while True:
            fits = False
            try:
                loss = super().training_step(model, self._cut(inputs), num_items_in_batch)
                fits = True
            except RuntimeError as error:
                if (
                    not self.halves
                    or not is_out_of_memory(error)
                    or self.state.global_step
                    or self.micro_batch == 1
                    or self.accelerator.num_processes > 1
                ):
                    raise
            if fits:
                self.step_loss = self.step_loss + loss.detach()
                return loss
            # Beyond the handler: the exception's frames hold the tensors.
            self.out_of_memory_at, self.micro_batch = self.micro_batch, self.micro_batch // 2
            model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()

    def _cut(self, batch: dict[str, Any]) -> dict[str, Any]:
        if ROW_LENGTHS in batch:
            return first_rows(batch, self.micro_batch)
        if len(batch["input_ids"]) <= self.micro_batch:
            return batch
        return {name: value[: self.micro_batch] for name, value in batch.items()}


class ProbeClock(TrainerCallback):
    """Times each step, says so, and ends the training when enough is known.

    A step of the plan has `order.accumulation` micro-batches; of a measured one with fewer, the time
    of a micro-batch that does no optimizer step is added for each that is missing, by its length.
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
        self._end = time.perf_counter()
        self._begin = self._end
        self._marks: list[float] = []
        self._passes = Passes()
        self._stops_s: float | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._answers.say("ready")
        self._wait_for_turn(state)
        self._end = self._now()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._begin, self._marks = self._now(), []

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._marks.append(self._now())

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        end = self._now()
        self.last_s = end - self._end
        loss, self._trainer.step_loss = float(self._trainer.step_loss), 0.0
        learned = {"step": state.global_step, "loss": loss}
        if state.global_step <= self._trainer.warm:
            self._warm_step(state)
        elif len(self._marks) + 1 == args.gradient_accumulation_steps:
            self.steps += 1
            self._answers.say("step", **learned, **self._whole_step(end, args))
        else:
            self._answers.say("short", **learned, seconds=self.last_s)
        if self._order.in_turns:
            self._wait_for_turn(state)
        elif self._stops_s is not None and self._agreed(time.monotonic() >= self._stops_s or self.steps >= MOST_STEPS):
            control.should_training_stop = True
        self._end = self._now()

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
        done = args.gradient_accumulation_steps
        missing = self._order.accumulation - done
        seconds = end - self._end
        whole = self._order.accumulation / done
        if missing > 0:
            part = self._trainer.next_part()
            whole = part.whole if part is not None else whole
            # Waiting for rows, and a forward and backward pass without the optimizer.
            waiting = (self._begin - self._end) / done
            seconds += missing * waiting + self._passes.missing_s(np.diff([self._begin, *self._marks]), part, missing)
        tokens = self._trainer.window_tokens * args.world_size * whole
        return {"seconds": seconds, "tokens": tokens, "micro_batch": self._trainer.micro_batch}

    def _wait_for_turn(self, state: TrainerState) -> None:
        """Every process looks for itself: one that waited in a collective would keep its GPU busy."""
        file = Path(self._trainer.args.output_dir or ".") / TURN
        while self._order.in_turns and _allowed(file) <= state.global_step:
            time.sleep(LOOK_EVERY_S)

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _agreed(self, mine: bool) -> bool:
        """What the first process says: every process must stop at the same step."""
        accelerator = self._trainer.accelerator
        if accelerator.num_processes == 1:
            return mine
        flag = torch.tensor([int(mine and accelerator.is_main_process)], device=accelerator.device)
        return bool(accelerator.reduce(flag, reduction="sum").item() > 0)


def _allowed(file: Path) -> int:
    """Steps in all; none before the file is there."""
    try:
        return int(read_small(file).decode())
    except (OSError, ValueError):
        return 0
