"""What a run logs: losses, tokens, memory."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from accelerate import Accelerator
from trainwiz.core.run.checkpoints import PROGRESS_JSON
from trainwiz.core.run.folder import RunFolder, read_json, write_json_atomic
from trainwiz.core.training.batches import FILLER_TOKENS
from trainwiz.core.training.best import Patience
from trainwiz.core.training.events import Moment, RunCallback
from trainwiz.core.training.process import LastingLines

# StepMeter: tokens, time and waiting of this process, measured where they happen.


class StepMeter:
    """Counts for one process. A window that was fetched counts when its optimizer step is done.

    `tokens` and `real_tokens` (without padding and rows that fill up) are those of the input, as plans count them.
    """

    def __init__(self) -> None:
        self._done = {"tokens": 0, "real_tokens": 0}
        self._fetched: list[tuple[str, torch.Tensor | int]] = []
        """Counts of the window under way; summed on the device and read when its step is done: no synchronisation here."""
        self._steps = 0
        self._wait_s = 0.0
        self._since: np.ndarray | None = None
        self._paused = np.zeros(2)

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches, with the time that each is waited for and the tokens that it holds."""
        while True:
            start = time.perf_counter()
            if self._since is None:
                self._since = _clocks()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._wait_s += time.perf_counter() - start
            tokens, mask = batch["input_ids"].numel(), batch.get("attention_mask")
            # Rows end to end have no mask: all of them is real.
            real = (mask.sum() if mask is not None else tokens) - batch.pop(FILLER_TOKENS, 0)
            self._fetched += [("tokens", tokens), ("real_tokens", real)]
            yield batch

    def step_done(self) -> None:
        self._steps += 1
        for name, count in self._fetched:
            self._done[name] += int(count)
        self._fetched = []

    def counts(self) -> dict[str, int]:
        """Name in metrics.jsonl -> tokens of this process in the steps that are done."""
        return dict(self._done)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here (evaluation, saving) is no step time."""
        start = _clocks()
        try:
            yield
        finally:
            # Before the first batch no time of a step has begun.
            if self._since is not None:
                self._paused += _clocks() - start

    def read_pace(self) -> tuple[int, float, float, float]:
        """Optimizer steps since the last call, and the means of one of them: its wall time without evaluation and saving, the
        time in which the loader had no batch ready, and that in which its thread had a core (where the CPU computes, what it
        takes with nothing beside it). The device's queue should be empty."""
        now, steps = _clocks(), max(self._steps, 1)
        spent = np.maximum(now - (now if self._since is None else self._since) - self._paused, 0.0) / steps
        pace = self._steps, float(spent[0]), self._wait_s / steps, float(spent[1])
        self._since, self._steps, self._wait_s, self._paused = now, 0, 0.0, np.zeros(2)
        return pace


def _clocks() -> np.ndarray:
    """Seconds by the wall, and those in which this thread had a core."""
    return np.array([time.perf_counter(), time.thread_time()])


def memory_figures(device: torch.device) -> dict[str, int | None]:
    """memory_allocated_bytes and memory_reserved_bytes (torch's allocator) and memory_device_used_bytes (all programs) of this
    process's device, None without CUDA; memory_host_rss_bytes of this process with its loader workers, and
    memory_host_available_bytes."""
    cuda = device.type == "cuda"
    free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
    return {
        "memory_allocated_bytes": torch.cuda.memory_allocated() if cuda else None,
        "memory_reserved_bytes": torch.cuda.memory_reserved() if cuda else None,
        "memory_device_used_bytes": total - free if cuda else None,
        "memory_host_rss_bytes": resident_bytes(),
        "memory_host_available_bytes": psutil.virtual_memory().available,
    }


def resident_bytes() -> int:
    """Resident bytes of this process and its children (loader workers)."""
    total, me = 0, psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


# metrics.jsonl: one line for each logged step and each evaluation, written by rank 0.


def json_number(value: Any) -> Any:
    """Numbers that JSON has; the others as the strings "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, torch.Tensor):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _head(now: Moment) -> dict[str, Any]:
    return {"time_s": time.time(), "step": now.state.global_step, "epoch": now.state.epoch}


class MetricsCallback(RunCallback):
    """Writes the lines and remembers the first and the last loss.

    Keys of a training line: time_s (Unix seconds), step, epoch, loss (mean nats a labelled token
    since the line before), learning_rate, grad_norm, tokens and real_tokens (all processes, since
    the start of the run, with and without padding; of the input), tokens_per_s, real_tokens_per_s, step_s,
    data_wait_s, on a CPU own_s (means since the line before, this process), peak_allocated_bytes and
    peak_reserved_bytes (the fullest device; null without CUDA). An evaluation line: time_s, step,
    epoch and names that begin with eval_; of memory: these and `memory_figures` of process 0. A line {"resumed_from": step} takes back the lines
    before it with a higher step.
    """

    def __init__(
        self,
        folder: RunFolder,
        meter: StepMeter,
        accelerator: Accelerator,
        patience: Patience | None = None,
        memory_every: int | None = None,
    ) -> None:
        """`patience` goes into every checkpoint with the counts. `memory_every`: steps after which there is a line of memory."""
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.last_evaluation: dict[str, Any] = {}
        self._folder = folder
        self._lines = LastingLines(folder.metrics_jsonl)
        self._meter = meter
        self._accelerator = accelerator
        self._patience = patience
        self._memory_every = memory_every
        self.evaluated_step: int | None = None
        """Step of the last evaluation that has a result."""
        self._before: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def begin(self, checkpoint: Path | None) -> int | None:
        """Go on from the counts that a checkpoint holds, and its step. Without one nothing has begun. Either way what an
        attempt before this one logged beyond is taken back."""
        step, path = None, self._folder.metrics_jsonl
        if checkpoint is not None:
            step = int((read_json(checkpoint / "trainer_state.json") or {}).get("global_step") or 0)
            progress = read_json(checkpoint / PROGRESS_JSON) or {}
            self._before = {name: int(progress.get(name) or 0) for name in self._meter.counts()}
            self._last = dict(self._before)
            self.first_loss = progress.get("first_loss")
            self.last_loss = progress.get("last_loss")
            self.last_evaluation = progress.get("last_evaluation") or {}
            self.evaluated_step = progress.get("evaluated_step")
            if self._patience is not None:
                self._patience.resume(progress)
        logged = step is not None or (path.exists() and path.stat().st_size > 0)
        if logged and self._accelerator.is_main_process:
            self._write({"time_s": time.time(), "resumed_from": step or 0})
        return step

    def save_progress(self, checkpoint: Path) -> None:
        """Write the counts into a checkpoint; every process must call it."""
        counts, *_ = self._totals()
        if self._accelerator.is_main_process:
            checkpoint.mkdir(parents=True, exist_ok=True)
            evaluation = {name: json_number(value) for name, value in self.last_evaluation.items()}
            progress = {
                **counts,
                "first_loss": json_number(self.first_loss),
                "last_loss": json_number(self.last_loss),
                "last_evaluation": evaluation,
                "evaluated_step": self.evaluated_step,
                **(self._patience.to_json() if self._patience is not None else {}),
                "world_size": self._accelerator.num_processes,
            }
            write_json_atomic(checkpoint / PROGRESS_JSON, progress)

    def step_end(self, now: Moment) -> None:
        self._meter.step_done()
        due = self._memory_every is not None and now.state.global_step % self._memory_every == 0
        if due and self._accelerator.is_main_process:
            self._write({**_head(now), **memory_figures(self._accelerator.device)})
        if now.state.global_step >= now.state.max_steps:
            now.control.should_log = True

    def log(self, now: Moment) -> None:
        logs = now.values.get("logs") or {}
        evaluation = {name: value for name, value in logs.items() if name.startswith("eval_")}
        if "loss" in logs:
            line = {**_head(now), **self._training_line(logs)}
        elif evaluation:
            self.last_evaluation, self.evaluated_step = evaluation, now.state.global_step
            line = {**_head(now), **evaluation}
        else:
            return
        if self._accelerator.is_main_process:
            self._write({name: json_number(value) for name, value in line.items()})
            print(_shown(line, now.state.max_steps), flush=True)

    def _training_line(self, logs: dict[str, Any]) -> dict[str, Any]:
        self.last_loss = logs["loss"]
        if self.first_loss is None:
            self.first_loss = logs["loss"]
        counts, allocated, reserved = self._totals()
        tokens, real_tokens = (counts[name] - self._last.get(name, 0) for name in ("tokens", "real_tokens"))
        steps, step_s, data_wait_s, own_s = self._meter.read_pace()
        seconds = step_s * steps
        line = {
            "loss": logs["loss"],
            "learning_rate": logs.get("learning_rate"),
            "grad_norm": logs.get("grad_norm"),
            **counts,
            "tokens_per_s": tokens / seconds if seconds > 0 else None,
            "real_tokens_per_s": real_tokens / seconds if seconds > 0 else None,
            "step_s": step_s if steps else None,
            "data_wait_s": data_wait_s if steps else None,
            **({"own_s": own_s} if steps and self._accelerator.device.type == "cpu" else {}),
            "peak_allocated_bytes": allocated,
            "peak_reserved_bytes": reserved,
        }
        self._last = counts
        return line

    def _totals(self) -> tuple[dict[str, int], int | None, int | None]:
        """Counts since the start of the run, peak allocated and reserved bytes, over all processes."""
        cuda = self._accelerator.device.type == "cuda"
        counts = self._meter.counts()
        peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()] if cuda else [0, 0]
        mine = torch.tensor([*counts.values(), *peaks], dtype=torch.int64, device=self._accelerator.device)
        every = self._accelerator.gather(mine).reshape(-1, len(mine)).cpu()
        sums = every[:, : len(counts)].sum(dim=0).tolist()
        allocated, reserved = every[:, len(counts) :].max(dim=0).values.tolist()
        total = {name: self._before.get(name, 0) + int(count) for name, count in zip(counts, sums, strict=True)}
        return total, int(allocated) if cuda else None, int(reserved) if cuda else None

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.write(json.dumps(line, allow_nan=False))


def _shown(line: dict[str, Any], max_steps: int) -> str:
    """The line of the log for people."""
    place = f"step {line['step']}/{max_steps}"
    if "loss" in line:
        rate = line["real_tokens_per_s"]
        speed = f"  {rate:,.0f} non-padding tokens/s" if rate else ""
        return f"{place}  loss {line['loss']:.4f}  learning rate {line['learning_rate']:.3g}{speed}"
    values = ((word, line.get(f"eval_{word.lower()}")) for word in ("loss", "perplexity", "accuracy", "F1", "BLEU"))
    measured = ", ".join(f"{word} {value:.4f}" for word, value in values if isinstance(value, float))
    return f"{place}  evaluation" + (f": {measured}" if measured else "")
