"""What the reasons in a profile speak of: the profile's own model, data, sizes and card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CARD = "hardware.gpu"
"""Stands for the card in the tables below; it is no key of a config."""

MODEL = ("model.name", "model.architecture_overrides", "peft.method", "peft.rank")
DATA = ("data.sources",)
SIZES = ("batch.sequence_length", "batch.target_length", "batch.micro_batch_size")
TARGET = ("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens")
LENGTH = ("training.max_steps", "training.epochs")
FITTING = (*MODEL, *SIZES, CARD)

CAUSES: Mapping[str, tuple[str, ...]] = {
    "model.source_language": MODEL,
    "model.target_language": MODEL,
    "data.workers": (*DATA, CARD),
    "data.streaming": DATA,
    "data.validation_rows": DATA,
    "batch.target_samples": (*MODEL, *DATA, "batch.micro_batch_size", *LENGTH),
    "batch.target_tokens": (*MODEL, *DATA),
    "batch.target_real_tokens": (*MODEL, *DATA),
    "batch.sequence_length": DATA,
    "batch.micro_batch_size": (*FITTING, *TARGET),
    "batch.eval_micro_batch_size": FITTING,
    "batch.gradient_accumulation_steps": (*SIZES, *TARGET),
    "training.max_steps": (*MODEL, *DATA, *TARGET),
    "training.epochs": (*MODEL, *DATA),
    "training.learning_rate": (*MODEL, *TARGET),
    "training.warmup": (*MODEL, *LENGTH),
    "engine.precision": (CARD,),
    "engine.tf32": (CARD,),
    "engine.attention": (CARD,),
    "engine.checkpointing": FITTING,
    "engine.optimizer": (*FITTING, "engine.strategy", "engine.offload"),
    "engine.strategy": (*FITTING, "engine.offload"),
    "engine.offload": FITTING,
    "evaluation.metric": ("task",),
    "evaluation.generate": ("task",),
    "evaluation.generate_at": DATA,
    "evaluation.generation_rows": DATA,
    "checkpoint.every_steps": (*DATA, *TARGET, *LENGTH),
}
"""Key -> what its reason in a profile may speak of. The reason of another key speaks of itself."""


def fitting_reasons(
    inherited: Mapping[str, str], theirs: Mapping[str, Any], mine: Mapping[str, Any], *, other_card: bool
) -> dict[str, str]:
    """The inherited reasons that hold beside `mine`: those whose causes are still what `theirs` has."""
    changed = set(changed_causes(theirs, mine)) | ({CARD} if other_card else set())
    return {
        key: why
        for key, why in inherited.items()
        if not any(cause in changed and cause != key for cause in CAUSES.get(key, ()))
    }


def changed_causes(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> Iterator[str]:
    """The causes that `theirs` says and `mine` has otherwise; a cause that `mine` does not hold is none of them."""
    for cause in dict.fromkeys(cause for causes in CAUSES.values() for cause in causes):
        if theirs.get(cause) is not None and cause in mine and _plain(mine[cause]) != _plain(theirs[cause]):
            yield cause


def _plain(value: Any) -> Any:
    """Sources by their names: another limit of rows is no other data."""
    if isinstance(value, list):
        return [item["name"] if isinstance(item, Mapping) else getattr(item, "name", item) for item in value]
    return value
