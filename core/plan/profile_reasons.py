"""What a profile says of a value holds for the profile's own model, data, sizes and card. Beside others it would be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile

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


def with_fitting_reasons(config: RunConfig, profile: Profile | None, machine: Machine) -> RunConfig:
    """`config`, complete, where the reason of a profile's value says so when its cause is not the profile's any more."""
    if profile is None:
        return config
    changed = dict(_changed_causes(config, profile, machine))
    origins = dict(config.origins)
    for key, causes in CAUSES.items():
        origin = origins.get(key)
        cause = next((cause for cause in causes if cause in changed and cause != key), None)
        if origin is not None and origin.origin == "profile" and origin.reason and cause is not None:
            origins[key] = Origin(origin="profile", reason=_reason(cause, changed[cause]))
    return config.model_copy(update={"origins": origins}) if origins != config.origins else config


def _changed_causes(config: RunConfig, profile: Profile, machine: Machine) -> Iterator[tuple[str, Any]]:
    """(cause, the profile's value): what the profile says itself and the plan has otherwise."""
    for cause in dict.fromkeys(cause for causes in CAUSES.values() for cause in causes):
        if cause == CARD:
            card = profile.hardware.gpu
            if card is not None and all(gpu.catalogue_name != card for gpu in machine.gpus):
                yield cause, card
        elif profile.values.get(cause) is not None and _plain(config.value(cause)) != _plain(profile.values[cause]):
            yield cause, profile.values[cause]


def _plain(value: Any) -> Any:
    """Sources by their names: another limit of rows is no other data."""
    if isinstance(value, list):
        return [item["name"] if isinstance(item, Mapping) else getattr(item, "name", item) for item in value]
    return value


def _reason(cause: str, theirs: Any) -> str:
    if cause == CARD:
        return tr("from the profile, which is made for {gpu}", gpu=theirs)
    if cause == "model.name":
        return tr("from the profile, which trains {model}", model=theirs)
    if cause == "data.sources":
        return tr("from the profile, which has other data")
    if cause == "model.architecture_overrides":
        return tr("from the profile, whose model has another shape")
    return tr("from the profile, where {key} is {value}", key=cause, value=theirs)
