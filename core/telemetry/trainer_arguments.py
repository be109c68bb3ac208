"""TrainerArguments: what transformers' TrainingArguments say about a job, as its TensorBoard callback writes them down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.numbers import finite, step_of

ARGUMENTS_TAG = "args/text_summary"
SHOWN = (
    "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
    "lr_scheduler_type", "warmup_ratio", "warmup_steps", "weight_decay", "optim", "fp16", "bf16", "tf32",
    "gradient_checkpointing", "activation_checkpointing", "deepspeed", "fsdp", "seed", "logging_steps", "save_steps",
)  # fmt: skip
"""Keys that are shown; others (paths, tokens of the hub) stay out."""


@dataclass(frozen=True, slots=True)
class TrainerArguments:
    """None where they do not say."""

    max_steps: int | None = None
    epochs: float | None = None
    batch: int | None = None
    """Sequences of one forward pass on one device."""
    accumulation: int | None = None
    shown: Mapping[str, str] = field(default_factory=dict)

    def steps_in_all(self, step: int | None, epoch: float | None) -> int | None:
        """The planned steps; without a number of its own, by how far in the epochs `step` is (a guess within 1 %)."""
        if self.max_steps:
            return self.max_steps
        if not step or not epoch or not self.epochs:
            return None
        whole = step_of(step / epoch * self.epochs + 0.5)
        return None if whole is None else max(step, whole)


def parse_arguments(text: str) -> TrainerArguments:
    """From the JSON text that the callback writes; empty for anything else."""
    try:
        document = parse_json(text)
    except ValueError:
        return TrainerArguments()
    if not isinstance(document, dict):
        return TrainerArguments()
    return TrainerArguments(
        max_steps=_count(document.get("max_steps")),
        epochs=_positive(document.get("num_train_epochs")),
        batch=_count(document.get("per_device_train_batch_size")),
        accumulation=_count(document.get("gradient_accumulation_steps")),
        shown={key: as_text(document[key]) for key in SHOWN if document.get(key) not in (None, False, "", [], {})},
    )


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:200]


def _positive(value: Any) -> float | None:
    known = finite(value)
    return known if known is not None and known > 0 else None


def _count(value: Any) -> int | None:
    known = step_of(value)
    return known if known is not None and known > 0 else None
