"""Draft: a RunConfig while its open values are being settled, each with who chose it and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.config import Origin, OriginKind, RunConfig, set_path
from trainwiz.core.plan.result import Choice

READING_ORDER: tuple[str, ...] = (
    "model.name",
    "model.init",
    "task",
    "data.sources",
    "batch.target_tokens",
    "batch.target_real_tokens",
    "batch.target_samples",
    "batch.sequence_length",
    "batch.target_length",
    "peft.method",
    "peft.rank",
    "peft.targets",
    "training.max_steps",
    "training.epochs",
    "training.learning_rate",
    "training.schedule",
    "training.final_learning_rate",
    "training.warmup",
    "training.loss_mean",
    "batch.micro_batch_size",
    "batch.gradient_accumulation_steps",
    "engine.device",
    "engine.processes",
    "engine.precision",
    "engine.tf32",
    "engine.attention",
    "engine.checkpointing",
    "engine.optimizer",
    "engine.strategy",
    "engine.offload",
    "engine.compile",
    "engine.process_timeout_s",
    "data.workers",
    "data.prefetch",
    "data.pin_memory",
    "data.streaming",
    "data.concatenate",
    "data.arrange_by_length",
    "data.group_by_length",
    "data.pad_to_multiple_of",
    "data.packing",
    "data.validation_rows",
    "checkpoint.every_steps",
    "checkpoint.keep",
    "evaluation.every_steps",
    "evaluation.metric",
    "evaluation.generation_length",
    "logging.every_steps",
)
"""What a person asks first comes first; keys that are not here follow in the order of the config."""

NOT_SHOWN = frozenset({"model.architecture", "mode.kind", "name", "profile"})


@dataclass(slots=True)
class Draft:
    """Values settled so far, on top of a config."""

    config: RunConfig
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    mean_length: float | None = None
    """Real tokens of a usual row; None where the data does not say."""

    model_config: str | None = None
    """The architecture config as JSON, once it was written: it is settled before anything is computed of it."""

    def view(self) -> RunConfig:
        """The values settled so far, not validated and without their origins: for reading only."""
        sections: dict[str, dict[str, Any]] = {}
        top: dict[str, Any] = {}
        for key, value in self.values.items():
            section, _, rest = key.partition(".")
            if not rest:
                top[key] = value
            elif "." not in rest:
                sections.setdefault(section, {})[rest] = value
        for section, values in sections.items():
            top[section] = getattr(self.config, section).model_copy(update=values)
        return self.config.model_copy(update=top)

    def get(self, key: str) -> Any:
        return self.values[key] if key in self.values else self.config.value(key)

    def is_open(self, key: str) -> bool:
        return self.get(key) is None

    def put(self, key: str, value: Any, reason: str, origin: OriginKind = "solved") -> None:
        """Set `key`, whatever it was."""
        self.values[key] = value
        self.origins[key] = Origin(origin=origin, reason=reason)

    def settle(self, key: str, value: Any, reason: str, origin: OriginKind = "solved") -> None:
        """Set `key` where nobody chose a value."""
        if self.is_open(key):
            self.put(key, value, reason, origin)

    def finish(self) -> RunConfig:
        """The complete config, validated once."""
        document = self.config.model_dump(mode="python")
        for key, value in self.values.items():
            set_path(document, key, value)
        document["origins"] = {**self.config.origins, **self.origins}
        return RunConfig.model_validate(document)


def type_of_model(config: RunConfig) -> str | None:
    """The model_type of the architecture that is trained, overrides included; None where it is not known."""
    kind = {**(config.model.architecture or {}), **config.model.architecture_overrides}.get("model_type")
    return kind if isinstance(kind, str) else None


def choices_of(config: RunConfig) -> tuple[Choice, ...]:
    """Every value that somebody chose, in the order in which a person would read them."""
    rank = {key: position for position, key in enumerate(READING_ORDER)}
    keys = [key for key in config.origins if key not in NOT_SHOWN]
    keys.sort(key=lambda key: rank.get(key, len(rank)))
    choices = []
    for key in keys:
        try:
            value = config.value(key)
        except KeyError:
            continue
        origin = config.origins[key]
        choices.append(Choice(key, _plain(value), origin.origin, origin.reason))
    return tuple(choices)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return {name: inner for name, inner in value.model_dump().items() if inner is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
