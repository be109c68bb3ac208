"""The tasks that can be trained: each makes the parts that the Trainer needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.training.causal_lm import build_causal_lm
from trainwiz.core.training.masked_lm import build_masked_lm
from trainwiz.core.training.packing import with_packing
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.seq2seq import build_seq2seq

TaskBuilder = Callable[[RunConfig, Path, Path | None, int], TaskParts]
"""(config, run folder, checkpoint to resume from, processes) -> parts."""

TASKS: dict[str, TaskBuilder] = {
    "masked-lm": build_masked_lm,
    "causal-lm": build_causal_lm,
    "seq2seq": build_seq2seq,
}


def build_task(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """The parts of the configured task. Raises UsageError with all that is wrong with its data, tokenizer or model."""
    parts = TASKS[config.task](config, folder, checkpoint, processes)
    return with_packing(parts) if packs_rows(config) else parts
