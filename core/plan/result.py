"""Plan: what a run will be, as one value that grows: what was asked, what is resolved, what is to be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.errors import Finding, Remedy, Severity
from trainwiz.core.plan.words import plan_command

if TYPE_CHECKING:
    from trainwiz.core.batch import BatchSolution
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.config import OriginKind, RunConfig
    from trainwiz.core.data.summary import DataSummary
    from trainwiz.core.estimate.architecture import Architecture
    from trainwiz.core.estimate.evidence import Evidence
    from trainwiz.core.estimate.memory import MemoryEstimate
    from trainwiz.core.estimate.time import Rate
    from trainwiz.core.estimate.workload import MemoryVerdict, Tier, TimeVerdict, Workload
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.engine import Devices
    from trainwiz.core.plan.rows import PaddedCost
    from trainwiz.core.plan.times import Pace
    from trainwiz.core.profile.profile import Profile

# Plan: what a run will be, part by part. Its JSON is what every screen and program shows.


@dataclass(frozen=True, slots=True)
class PlannedModel:
    name: str
    architecture: str | None
    parameters: int | None
    trainable_parameters: int | None
    learnt: str = ""
    """What is about to be learnt, in a few words: "fine-tunes the weights in ./model"; empty where the model is unknown."""


@dataclass(frozen=True, slots=True)
class BatchAlternative:
    """Another factorisation near the target."""

    micro_batch: int
    accumulation: int
    effective_samples: int
    effective_tokens: int
    deviation: float


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """micro_batch x accumulation x world_size = effective_samples."""

    micro_batch: int
    accumulation: int
    world_size: int
    sequence_length: int
    effective_samples: int
    effective_tokens: int
    """Padding included: effective_samples x sequence_length."""
    real_tokens: int | None
    """Expected real tokens a step on this data; None when the data is not known."""
    target_tokens: int | None
    target_samples: int | None
    deviation: float | None
    """(effective - target) / target; None without a target."""
    alternatives: tuple[BatchAlternative, ...] = ()
    target_real_tokens: int | None = None
    padded_tokens: int | None = None
    """Tokens a step that are computed, each micro-batch padded to its own longest row, its rows in the order of the run;
    None where lengths are unknown."""
    padding_waste: float | None = None
    """Share of `padded_tokens` that is padding, 0 to 1."""
    arranged_waste: float | None = None
    """The same with the rows of a step arranged by length."""
    drawn_tokens: int | None = None
    """`padded_tokens` with the rows of a step in the order in which they are drawn, as other trainers compute them."""
    drawn_waste: float | None = None
    operations_gain: float | None = None
    """Operations of the rows as drawn over those of this order, attention's growth with the square of a length included."""
    possible_operations_gain: float | None = None
    """The same over those of rows without any padding: what no order exceeds."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Peak memory of the fullest device. Without a GPU the device is host RAM."""

    tier: Tier
    allocated_bytes: int
    reserved_bytes: int
    device_used_bytes: int
    """What nvidia-smi would show, with its range: cached blocks too, which torch gives back before it fails. Decides nothing."""
    low_bytes: int
    high_bytes: int
    breakdown: dict[str, int]
    """weights, gradients, optimizer, activations, logits, temporary, context (bytes at the peak)."""
    peak_moment: str
    capacity_bytes: int | None
    verdict: MemoryVerdict | None
    host_ram_bytes: int
    host_ram_capacity_bytes: int | None
    host_ram_parts: dict[str, int]
    disk_bytes: int
    disk_capacity_bytes: int | None
    device: str
    """ "GPU 0 · RTX 3080 10GB" or "host RAM"."""
    evaluation_bytes: int | None = None
    """Like judged_bytes, while held-out rows are evaluated or text is generated; None without such rows. The
    other figures are of training; `verdict` is of both."""
    basis: str = ""
    """Where the figures come from in words: "formulas", "full trace", "measured here on 2026-11-21"."""
    waiting: str = ""
    'What is still on its way or failed: "tracing the whole model…", "the tracer died; ...".'
    host_ram_low_bytes: int | None = None
    host_ram_high_bytes: int | None = None
    """The range of host_ram_bytes, which is a prediction: what CUDA's libraries take there is published, not measured."""
    needed_bytes: int = 0
    """What must be free on the device: allocated memory and the context."""
    needed_high_bytes: int = 0
    """With so much free it fits also when all goes against it: `verdict` compares the two with the capacity."""

    @property
    def judged_bytes(self) -> int:
        """What people set against the capacity: what is needed; of a process on a CPU its resident memory."""
        return self.device_used_bytes if self.device == "host RAM" else self.needed_bytes or self.device_used_bytes

    @property
    def judged_high_bytes(self) -> int:
        return self.high_bytes if self.device == "host RAM" else self.needed_high_bytes or self.high_bytes


@dataclass(frozen=True, slots=True)
class TimePlan:
    """Time as a range. None where the device's rate is not known."""

    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    steps: int | None = None
    epochs: float | None = None
    total_s: float | None = None
    total_low_s: float | None = None
    total_high_s: float | None = None
    evaluation_s: float | None = None
    saving_s: float | None = None
    tokens_per_s: float | None = None
    fraction_of_peak: float | None = None
    basis: Literal["formula", "rates", "others", "probe", "history"] = "formula"
    verdict: TimeVerdict | None = None
    start_low_s: float | None = None
    start_high_s: float | None = None
    """Launcher, imports, model and data, and closing at the end: a part of the total."""
    generation_s: float | None = None
    """Generating text in evaluations: a part of the total, not of evaluation_s."""
    basis_text: str = ""
    """Where the pace comes from in words: "by published runs on such cards", "measured here on 2026-11-21 (probe)"."""
    total_tokens: int | None = None
    """Tokens of the whole run, padding included."""
    real_tokens: int | None = None
    energy_low_kwh: float | None = None
    energy_high_kwh: float | None = None
    energy_cost_low: float | None = None
    energy_cost_high: float | None = None
    currency: str = ""
    network_bytes: int | None = None
    """That a step sends out of each machine; None for a run on one."""
    network_high_s: float | None = None
    """Of step_high_s: their way over the network, where no computation hides it."""
    network_gbit_s: float | None = None
    network_assumed: bool | None = None
    """Nobody said how fast the network is (planning.network_gbit_s)."""
    pace_gain: float | None = None
    """How many times the pace of the rows as drawn this order has."""
    possible_pace_gain: float | None = None
    """The same for rows without any padding."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that the product chose, with its reason."""

    key: str
    value: Any
    origin: OriginKind
    reason: str


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to fit, or to use what is free."""

    words: str
    changes: Mapping[str, Any]
    after: Plan
    time: float
    """Of a sequence over that without the change; 1 where the device's rate is not known."""
    trains_otherwise: bool = False
    """Whether it changes what is learnt: shorter sequences, adapters."""


WayOut = Remedy | tuple[str, Mapping[str, Any]]
"""A remedy, or its words and the changes that it is."""
LATER: Any = None
"""Of what a step of core/plan/resolve.py writes."""


@dataclass(slots=True)
class Plan:
    """The whole preview. What is asked is given; steps write the rest, after which nothing is left to solve."""

    machine: Machine
    config: RunConfig
    """As it was asked for; complete once the plan is resolved."""
    model: PlannedModel = LATER
    batch: BatchPlan = LATER
    memory: MemoryPlan = LATER
    time: TimePlan = LATER
    choices: tuple[Choice, ...] = ()
    findings: tuple[Finding, ...] = ()

    spec: ModelSpec | None = None
    """The model. It and `data` are None where `findings` says why."""
    data: DataSummary | None = None
    based_on: Profile | None = None
    known: Evidence = LATER
    """Beyond the formulas; it makes the estimates better."""
    asked: RunConfig = LATER
    """`config` before anything was resolved: what is planned again with a change."""
    found: tuple[Finding, ...] = ()
    """What there was to say of what was asked."""

    values: dict[str, Any] = field(default_factory=dict)
    """Settings that are resolved so far, on top of `config`, with who chose them and why."""
    reasons: dict[str, tuple[OriginKind, str]] = field(default_factory=dict)
    mean_length: float | None = None
    """Real tokens of a usual row; None where the data does not say."""
    model_config: str | None = None
    """The architecture config as JSON, once it was written: it is resolved before anything is computed of it."""

    devices: Devices = LATER
    evidence: Evidence = LATER
    """Of `known` what is of these devices."""
    architecture: Architecture | None = None
    unknown_architecture: str = ""
    """Why there is none."""
    counted: DataSummary | None = None
    """The data, or where it is not here what the limits of its sources say of its rows."""
    solution: BatchSolution = LATER
    steps: int | None = None
    epochs: float | None = None
    work: Workload | None = None
    """What one process computes: what a trace is asked for. None when the architecture is not known."""
    usual: Workload | None = None
    """`work` at the lengths of a usual batch, which the time is of."""
    padded: PaddedCost | None = None
    rate: Rate | None = None
    pace: Pace | None = None
    estimate: MemoryEstimate = LATER
    evaluation: MemoryEstimate | None = None
    """Of evaluating held-out rows; None where there are none."""
    fixes: tuple[Fix, ...] = ()
    """What would make it fit, where it does not."""
    headroom: tuple[Fix, ...] = ()
    """What would use the memory that it leaves free."""

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
        self.reasons[key] = origin, reason

    def resolve(self, key: str, value: Any, reason: str, origin: OriginKind = "solved") -> None:
        """Set `key` where nobody chose a value."""
        if self.is_open(key):
            self.put(key, value, reason, origin)

    def finish(self) -> None:
        """The complete config, validated once."""
        from trainwiz.core.config import Origin, RunConfig, set_path

        document = self.config.model_dump(mode="python")
        for key, value in self.values.items():
            set_path(document, key, value)
        resolved = {key: Origin(origin=origin, reason=reason) for key, (origin, reason) in self.reasons.items()}
        document["origins"] = {**self.config.origins, **resolved}
        self.config = RunConfig.model_validate(document)

    @property
    def profile(self) -> str | None:
        return self.config.profile

    @property
    def task(self) -> str:
        return self.config.task

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def candidates(self) -> tuple[Workload, ...]:
        """Changed workloads whose peaks the findings name, for traces of their own."""
        changed = (fix.after for fix in (*self.fixes, *self.headroom))
        return tuple(after.work for after in changed if after.work is not None and after.spec is self.spec)

    @property
    def share_bytes(self) -> int | None:
        """Memory that one process may use: on a CPU all of the machine share its RAM. None where it is not known."""
        return self.devices.share_bytes

    @property
    def most_positions(self) -> int | None:
        """Of the model's table of positions; None where it has none."""
        architecture = self.architecture
        return None if architecture is None or architecture.rotary else architecture.max_positions

    @property
    def model_type(self) -> str | None:
        """Of the architecture that is trained, overrides included; None where it is not known."""
        kind = self.get("model.architecture_overrides").get("model_type")
        kind = kind or (self.get("model.architecture") or {}).get("model_type")
        return kind if isinstance(kind, str) else None

    def chosen_by_hand(self, key: str) -> bool:
        return self.config.origin(key).origin != "solved"

    def of_profile(self, key: str) -> bool:
        return self.config.origin(key).origin == "profile"

    def remedy(self, text: str, changes: Mapping[str, Any]) -> Remedy:
        """A remedy that a front end can apply and a shell can run."""
        return Remedy(text, plan_command(self.config, self.machine, changes), changes)

    def finding(self, code: str, severity: Severity, where: str, message: str, *remedies: WayOut) -> Finding:
        made = (way if isinstance(way, Remedy) else self.remedy(*way) for way in remedies)
        return Finding(code, severity, where, message, tuple(made))

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz plan --json` and of plan.json."""
        from trainwiz.core.export.accelerate import run_variables

        return {
            "profile": self.profile,
            "machine": self.machine.to_json(),
            "model": asdict(self.model),
            "task": self.task,
            "batch": asdict(self.batch),
            "memory": asdict(self.memory),
            "time": asdict(self.time),
            "choices": [asdict(choice) for choice in self.choices],
            "findings": [finding.to_json() for finding in self.findings],
            "data": None if self.data is None else _data_json(self.data),
            "environment": [asdict(variable) for variable in run_variables(self.config)],
        }


def _data_json(data: DataSummary) -> dict[str, Any]:
    same = ("rows", "rows_exact", "validation_rows", "length_unit", "bytes_on_disk")
    return {
        **{name: getattr(data, name) for name in same},
        "mean_length": sum(data.lengths) / len(data.lengths) if data.lengths else None,
        "longest": max(data.lengths, default=None),
        "columns": list(data.columns),
        "labels": None if data.labels is None else data.labels.to_json(),
    }
