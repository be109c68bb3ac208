"""Draft: a RunConfig while its open values are resolved; Facts: what the findings are judged on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import Origin, OriginKind, RunConfig, set_path
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.memory import MemoryEstimate
from trainwiz.core.estimate.time import Rate
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.result import BatchPlan, Choice, MemoryPlan, TimePlan, plan_command
from trainwiz.core.profile.profile import Profile

if TYPE_CHECKING:
    from trainwiz.core.plan.remedied import Fix


# Draft: a RunConfig while its open values are being resolved, each with who chose it and why.

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
    """Values resolved so far, on top of a config."""

    config: RunConfig
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    mean_length: float | None = None
    """Real tokens of a usual row; None where the data does not say."""

    model_config: str | None = None
    """The architecture config as JSON, once it was written: it is resolved before anything is computed of it."""

    def view(self) -> RunConfig:
        """The values resolved so far, not validated and without their origins: for reading only."""
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

    def resolve(self, key: str, value: Any, reason: str, origin: OriginKind = "solved") -> None:
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


# Facts: everything that the findings of a plan are judged on.


@dataclass(frozen=True, slots=True)
class Given:
    """What a plan is made from; `config` is as it was asked for. `model` and `data` are None where `findings` says why."""

    machine: Machine
    config: RunConfig
    model: ModelSpec | None
    data: DataSummary | None
    profile: Profile | None
    findings: tuple[Finding, ...] = ()
    evidence: Evidence = NO_EVIDENCE


@dataclass(frozen=True, slots=True)
class Facts:
    """One plan, before it is judged. `config` is complete."""

    given: Given
    findings: tuple[Finding, ...]
    """What was found while resolving."""
    machine: Machine
    config: RunConfig
    devices: Devices
    work: Workload | None
    """None when the architecture is not known; `unknown_architecture` then says why."""
    usual: Workload | None
    """`work` at the lengths of a usual batch, for its time."""
    unknown_architecture: str
    estimate: MemoryEstimate
    evaluation: MemoryEstimate | None
    """Of evaluating held-out rows; None where there are none."""
    memory: MemoryPlan
    batch: BatchPlan
    time: TimePlan
    rate: Rate | None
    data: DataSummary | None
    counted: DataSummary | None
    """The data, or where it is not here what the limits of its sources say of its rows."""
    profile: Profile | None
    evidence: Evidence = NO_EVIDENCE
    fixes: tuple[Fix, ...] = ()
    """What would make it fit, where it does not."""
    room: tuple[Fix, ...] = ()
    """What would use the memory that it leaves free."""

    @property
    def steps(self) -> int | None:
        return self.time.steps

    @property
    def processes_sharing(self) -> int:
        """How many processes compute in the memory that `memory` is about: on a CPU all of the machine share its RAM."""
        return self.devices.processes if self.devices.device == "cpu" else 1

    @property
    def share_bytes(self) -> int | None:
        """Memory that one process may use. None where it is not known."""
        capacity = self.memory.capacity_bytes
        return None if capacity is None else capacity // self.processes_sharing

    @property
    def model_type(self) -> str | None:
        """Of the architecture that is trained; None where it is not known."""
        return type_of_model(self.config)

    def remedy(self, text: str, changes: Mapping[str, Any]) -> Remedy:
        """A remedy that a front end can apply and a shell can run."""
        return Remedy(text, plan_command(self.config, self.machine, self.profile, changes), changes)
