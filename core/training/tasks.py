"""The tasks that can be trained: each makes the parts that the Trainer needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import usage_error
from trainwiz.core.training.masked_lm import build_masked_lm
from trainwiz.core.training.parts import TaskParts

TaskBuilder = Callable[[RunConfig, Path, Path | None, int], TaskParts]
"""(config, run folder, checkpoint to resume from, processes) -> parts."""

TASKS: dict[str, TaskBuilder] = {"masked-lm": build_masked_lm}


def build_task(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """The parts of the configured task. Raises UsageError for a task that is not here."""
    builder = TASKS.get(config.task)
    if builder is None:
        raise usage_error(
            "task_not_supported",
            "task",
            f"task {config.task!r} cannot be trained by this version of trainwiz; it trains {', '.join(TASKS)}.",
        )
    return builder(config, folder, checkpoint, processes)
