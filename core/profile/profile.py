"""Profile: a training setup for one kind of machine, and what its reasons speak of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Sizes of memory as people write them.

_UNITS: dict[str, int] = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str | int) -> int | None:
    """Bytes in "64G", "12 GB" or "10GiB" (memory is sold in powers of two: all three mean 2^30), or None."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", str(text), re.IGNORECASE)
    return int(float(match[1]) * _UNITS[match[2].lower()]) or None if match is not None else None


# Profile: a training setup for one kind of machine, as values with their reasons.


@dataclass(frozen=True, slots=True)
class ProfileHardware:
    """The machine that the profile is made for; None where it does not matter."""

    gpu: str | None = None
    """Name in the GPU catalogue; None: any machine, also one without a GPU."""
    num_gpus: int = 1
    ram_bytes: int | None = None
    cpu_cores: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, with what it `extends` already merged in."""

    name: str
    description: str = ""
    extends: str | None = None
    hardware: ProfileHardware = field(default_factory=ProfileHardware)
    values: Mapping[str, Any] = field(default_factory=dict)
    """RunConfig key path -> value."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """RunConfig key path -> why this value."""
    set_by: Mapping[str, str] = field(default_factory=dict)
    """RunConfig key path -> the profile that gives it: this one, or one that it extends."""
    claims: Mapping[str, Any] = field(default_factory=dict)
    """What the guide promises, for the plan to check: `tokens_per_s` [low, high], `total_time` and `peak_memory` as
    text, `launch` as `text`, a command said to train on all GPUs at once, with its `accumulation`, `remedies` as a list of pieces of advice. Each has a `text`, and of these what it says: `micro_batch`,
    `accumulation`, `sequence_length` to change to; `from_accumulation` and `memory_factor` (how many times less memory
    that change is said to need); `effective_samples`, an effective batch that is said to be about the profile's;
    `against: host`, said to help against host memory running out (else the GPU's)."""
    file: str = ""
    origin: Literal["builtin", "user"] = "builtin"


# What the reasons in a profile speak of: the profile's own model, data, sizes and card.

CARD = "hardware.gpu"
"""Stands for the card in the tables below; it is no key of a config."""

MODEL = ("model.name", "model.architecture_overrides", "peft.method", "peft.rank")
DATA = ("data.sources",)
TARGET = ("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens")
SIZES = ("batch.sequence_length", "batch.target_length", "batch.micro_batch_size", "engine.strategy", "engine.offload")
RECIPE = (*MODEL, *DATA, *TARGET, "training.max_steps", "training.epochs", "task")
FITTING = (*MODEL, *DATA, *TARGET, *SIZES, CARD)

CAUSES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((
        "model.source_language", "model.target_language", "data.streaming", "data.validation_rows", "batch.sequence_length",
        *TARGET, "training.max_steps", "training.epochs", "training.learning_rate", "training.warmup", "evaluation.metric",
        "evaluation.generate", "evaluation.generate_at", "evaluation.generation_rows", "checkpoint.every_steps",
    ), RECIPE),
    **dict.fromkeys((
        "data.workers", "batch.micro_batch_size", "batch.eval_micro_batch_size", "batch.gradient_accumulation_steps",
        "engine.checkpointing", "engine.optimizer", "engine.strategy", "engine.offload",
    ), FITTING),
    **dict.fromkeys(("engine.precision", "engine.tf32", "engine.attention"), (CARD,)),
}  # fmt: skip
"""Key -> what its reason in a profile may speak of. The reason of another key speaks of itself."""


def fitting_reasons(
    inherited: Mapping[str, str], theirs: Mapping[str, Any], mine: Mapping[str, Any], *, other_card: bool
) -> dict[str, str]:
    """The inherited reasons that hold beside `mine`: those whose causes are still what `theirs` has."""
    changed = changed_causes(theirs, mine) | ({CARD} if other_card else set())
    return {key: why for key, why in inherited.items() if not (changed - {key}).intersection(CAUSES.get(key, ()))}


def changed_causes(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> set[str]:
    """The causes that `theirs` says and `mine` has otherwise; a cause that `mine` does not hold is none of them."""
    said = {key for key in {*RECIPE, *FITTING} & theirs.keys() & mine.keys() if theirs[key] is not None}
    return {key for key in said if _plain(mine[key]) != _plain(theirs[key])}


def _plain(value: Any) -> Any:
    """Sources by their names: another limit of rows is no other data."""
    if isinstance(value, list):
        return [item["name"] if isinstance(item, Mapping) else getattr(item, "name", item) for item in value]
    return value
