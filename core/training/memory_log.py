"""The memory log: what devices and host hold, every N steps, in metrics.jsonl."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import psutil
import torch
from accelerate import Accelerator
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.full_disk import LastingLines
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

DEVICE_KEYS = ("memory_allocated_bytes", "memory_reserved_bytes", "memory_device_used_bytes")


class MemoryCallback(TrainerCallback):
    """One line every `every` steps: time_s, step, epoch and bytes at the end of the step.

    memory_allocated_bytes and memory_reserved_bytes (torch's allocator) and memory_device_used_bytes
    (all programs) are of the fullest device; null without CUDA. memory_host_rss_bytes is the sum over
    the training processes and their loader workers, memory_host_available_bytes what the host has left.
    """

    def __init__(self, folder: RunFolder, every: int, accelerator: Accelerator) -> None:
        self._lines = LastingLines(folder.metrics_jsonl)
        self._every = every
        self._accelerator = accelerator

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self._every == 0:
            figures = self._figures()
            if self._accelerator.is_main_process:
                line = {"time_s": time.time(), "step": state.global_step, "epoch": state.epoch, **figures}
                self._lines.write(json.dumps(line, allow_nan=False))

    def _figures(self) -> dict[str, int | None]:
        """Every process must call it."""
        cuda = self._accelerator.device.type == "cuda"
        device = [0, 0, 0]
        if cuda:
            free, total = torch.cuda.mem_get_info()
            device = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free]
        mine = torch.tensor([*device, resident_bytes()], dtype=torch.int64, device=self._accelerator.device)
        every = self._accelerator.gather(mine).reshape(-1, 4).cpu()
        fullest = [int(value) for value in every[:, :3].max(dim=0).values]
        figures: dict[str, int | None] = dict(zip(DEVICE_KEYS, fullest if cuda else [None] * 3, strict=True))
        figures["memory_host_rss_bytes"] = int(every[:, 3].sum())
        figures["memory_host_available_bytes"] = psutil.virtual_memory().available
        return figures


def resident_bytes() -> int:
    """Resident bytes of this process and its children (loader workers)."""
    total = 0
    me = psutil.Process(os.getpid())
    for process in (me, *me.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total
