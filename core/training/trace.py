"""Profiler traces of a few steps, for chrome://tracing or https://ui.perfetto.dev."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.metrics import StepMeter
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

WARM_UP_STEPS = 2
"""Steps before the trace: the first ones fill caches, pick kernels and compile."""
LONGEST_TABLE = 30


class TraceCallback(TrainerCallback):
    """Rank 0 records `steps` optimizer steps and writes two files into RUN/trace.

    steps-<first>-<last>.json.gz is the trace (Chrome's format), steps-<first>-<last>.txt the
    operations that took longest. A stop in the middle writes what there is.
    """

    def __init__(self, folder: RunFolder, steps: int, meter: StepMeter) -> None:
        self._folder = folder.trace
        self._steps = steps
        self._meter = meter
        self._first: int | None = None
        self._profiler: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            warm = state.global_step + WARM_UP_STEPS + 1
            self._first = max(state.global_step + 1, min(warm, state.max_steps - self._steps + 1))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._first is None or self._profiler is not None or state.global_step + 1 != self._first:
            return
        activities = [ProfilerActivity.CPU]
        if args.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, profile_memory=True, record_shapes=True)
        self._profiler.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._first is not None and state.global_step >= self._first + self._steps - 1:
            self._write(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._write(state.global_step)

    def _write(self, last: int) -> None:
        profiler, first, self._profiler, self._first = self._profiler, self._first, None, None
        if profiler is not None:
            with self._meter.paused():
                self._export(profiler, f"steps-{first}-{last}")

    def _export(self, profiler: Any, name: str) -> None:
        started = time.perf_counter()
        profiler.stop()
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{name}.json.gz"
        profiler.export_chrome_trace(str(path))
        on_gpu = torch.cuda.is_available() and ProfilerActivity.CUDA in profiler.activities
        order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=LONGEST_TABLE, max_name_column_width=60)
        (self._folder / f"{name}.txt").write_text(f"{table}\n", encoding="utf-8")
        print(f"trace in {path}, written in {time.perf_counter() - started:.1f} s", flush=True)
