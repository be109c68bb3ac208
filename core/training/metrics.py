"""What a run logs: losses, tokens, memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from trainwiz.core.training.callbacks import Moment, RunCallback
from trainwiz.core.training.process import LastingLines

# StepMeter: tokens, time and waiting of this process, measured where they happen.


COUNTS = ("tokens", "real_tokens")
"""Of the input, as plans count them: with and without padding and rows that fill up."""


class StepMeter:
    """Counts for one process. A window that was fetched counts when its optimizer step is done."""

    def __init__(self) -> None:
        self._done = [0, 0]
        self._fetched: list[tuple[int, torch.Tensor | int]] = []
        """COUNTS of the micro-batches of the window under way, read when its step is done: no synchronisation before."""
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
            self._fetched.append((tokens, (mask.sum() if mask is not None else tokens) - batch.pop(FILLER_TOKENS, 0)))
            yield batch

    def step_done(self) -> None:
        self._steps += 1
        self._done = [done + sum(map(int, fetched)) for done, *fetched in zip(self._done, *self._fetched, strict=True)]
        self._fetched = []

    def counts(self) -> dict[str, int]:
        """Name in metrics.jsonl -> tokens of this process in the steps that are done."""
        return dict(zip(COUNTS, self._done, strict=True))

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


NO_JSON = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_number(value: Any) -> Any:
    """Numbers that JSON has; the others as the strings "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, torch.Tensor):
        value = value.item()
    return NO_JSON.get(str(value), value)


def _json_numbers(values: dict[str, Any]) -> dict[str, Any]:
    return {name: json_number(value) for name, value in values.items()}


def _head(now: Moment) -> dict[str, Any]:
    return {"time_s": time.time(), "step": now.state.global_step, "epoch": now.state.epoch}


@dataclass(eq=False)
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

    folder: RunFolder
    meter: StepMeter
    accelerator: Accelerator
    patience: Patience | None = None
    """Goes into every checkpoint with the counts."""
    memory_every: int | None = None
    """Steps after which there is a line of memory."""
    first_loss: float | None = None
    last_loss: float | None = None
    last_evaluation: dict[str, Any] = field(default_factory=dict)
    evaluated_step: int | None = None
    """Step of the last evaluation that has a result."""
    before: dict[str, int] = field(default_factory=dict)
    """Counts of the checkpoint that the run was resumed from."""
    last: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    """Counts of the last training line."""

    def __post_init__(self) -> None:
        self._lines = LastingLines(self.folder.metrics_jsonl)

    def begin(self, checkpoint: Path | None) -> int | None:
        """Go on from the counts that a checkpoint holds, and its step. Without one nothing has begun. Either way what an
        attempt before this one logged beyond is taken back."""
        step, path = None, self.folder.metrics_jsonl
        if checkpoint is not None:
            step = int((read_json(checkpoint / "trainer_state.json") or {}).get("global_step") or 0)
            progress = read_json(checkpoint / PROGRESS_JSON) or {}
            self.before = self.last = {name: int(progress.get(name) or 0) for name in COUNTS}
            self.first_loss, self.last_loss = progress.get("first_loss"), progress.get("last_loss")
            self.last_evaluation = progress.get("last_evaluation") or {}
            self.evaluated_step = progress.get("evaluated_step")
            if self.patience is not None:
                self.patience.resume(progress)
        if step is not None or (path.exists() and path.stat().st_size > 0):
            self._write({"time_s": time.time(), "resumed_from": step or 0})
        return step

    def save_progress(self, checkpoint: Path) -> None:
        """Write the counts into a checkpoint; every process must call it."""
        counts, *_ = self._totals()
        if self.accelerator.is_main_process:
            checkpoint.mkdir(parents=True, exist_ok=True)
            progress = {
                **counts,
                "first_loss": json_number(self.first_loss),
                "last_loss": json_number(self.last_loss),
                "last_evaluation": _json_numbers(self.last_evaluation),
                "evaluated_step": self.evaluated_step,
                **(self.patience.to_json() if self.patience is not None else {}),
                "world_size": self.accelerator.num_processes,
            }
            write_json_atomic(checkpoint / PROGRESS_JSON, progress)

    def step_end(self, now: Moment) -> None:
        self.meter.step_done()
        if self.memory_every is not None and now.state.global_step % self.memory_every == 0:
            self._write({**_head(now), **memory_figures(self.accelerator.device)})
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
        self._write(_json_numbers(line))
        if self.accelerator.is_main_process:
            print(_shown(line, now.state.max_steps), flush=True)

    def _training_line(self, logs: dict[str, Any]) -> dict[str, Any]:
        self.last_loss = logs["loss"]
        if self.first_loss is None:
            self.first_loss = logs["loss"]
        (counts, allocated, reserved), before = self._totals(), self.last
        self.last = counts
        steps, step_s, data_wait_s, own_s = self.meter.read_pace()
        seconds = step_s * steps
        rates = {f"{name}_per_s": (counts[name] - before[name]) / seconds if seconds > 0 else None for name in COUNTS}
        return {
            **{name: logs.get(name) for name in ("loss", "learning_rate", "grad_norm")},
            **counts,
            **rates,
            "step_s": step_s if steps else None,
            "data_wait_s": data_wait_s if steps else None,
            **({"own_s": own_s} if steps and self.accelerator.device.type == "cpu" else {}),
            "peak_allocated_bytes": allocated,
            "peak_reserved_bytes": reserved,
        }

    def _totals(self) -> tuple[dict[str, int], int | None, int | None]:
        """Counts since the start of the run, peak allocated and reserved bytes, over all processes."""
        device, counts, peaks = self.accelerator.device, self.meter.counts(), [0, 0]
        if device.type == "cuda":
            peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
        mine = torch.tensor([*counts.values(), *peaks], dtype=torch.int64, device=device)
        every = self.accelerator.gather(mine).reshape(-1, len(mine)).cpu()
        sums, (allocated, reserved) = every.sum(dim=0).tolist(), every[:, len(counts) :].max(dim=0).values.tolist()
        total = {name: self.before.get(name, 0) + count for name, count in zip(COUNTS, sums, strict=False)}
        # Every device that counts has something in it.
        return total, allocated or None, reserved or None

    def _write(self, line: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
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
