"""Plan: what a run will be, as one frozen value, and the command that shows it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.defaults import profile_words
from trainwiz.core.errors import Finding

if TYPE_CHECKING:
    from trainwiz.core.config import OriginKind, RunConfig
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.core.config.sections import ModeSection
    from trainwiz.core.estimate.workload import MemoryVerdict, Tier, TimeVerdict, Workload
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.profile.profile import Profile

# Values of a RunConfig as arguments of the command. Imports nothing heavy: the keeper of a run uses it.

OWN_OPTIONS: Mapping[str, str] = {"model.name": "--model", "data.sources.0.name": "--dataset", "task": "--task"}
"""Keys with an option of their own, without which the demo would be meant."""
_OF_THE_COMMAND = ("profile", "name", "mode.")
"""Keys that the command says with options of their own."""


def set_words(values: Mapping[str, Any]) -> list[str]:
    """key path -> value as arguments: `--set`, but --model, --dataset and --task, without which the demo would be meant."""
    words: list[str] = []
    for key, value in values.items():
        if key in OWN_OPTIONS and value:
            words += [OWN_OPTIONS[key], str(value)]
        elif not key.startswith(_OF_THE_COMMAND):
            words += ["--set", f"{key}={_yaml(value)}"]
    return words


def not_said_twice(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys of which a whole section is in `values` too: data.sources.0.name beside data.sources."""
    return {
        key: value
        for key, value in values.items()
        if key in changes or not any(key.startswith(f"{other}.") for other in values)
    }


def _yaml(value: Any) -> str:
    """A value as `--set` reads it back: JSON is YAML, and a plain word stays plain."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, list):
        value = [item.model_dump(exclude_defaults=True) if hasattr(item, "model_dump") else item for item in value]
    return json.dumps(value)


# The command that shows a plan again with some values changed: what a remedy offers to paste.

MODE_WORDS: Mapping[str, str] = {
    "smoke": "--smoke",
    "dev-run": "--dev-run",
    "overfit": "--overfit",
    "benchmark": "--benchmark",
}


def plan_command(config: RunConfig, machine: Machine, profile: Profile | None, changes: Mapping[str, Any]) -> str:
    """`trainwiz plan` of the same run with `changes`: profile, machine, mode, the user's own values, the changes."""
    words = ["trainwiz", "plan", *profile_words(config.profile)]
    words += [*_machine_words(machine, profile), *mode_words(config.mode.kind, number_of_mode(config.mode))]
    yours = {key: config.value(key) for key, origin in config.origins.items() if origin.origin == "you"}
    return shlex.join([*words, *set_words(not_said_twice({**yours, **changes}, changes))])


def number_of_mode(mode: ModeSection | PlanRequest) -> int | None:
    """What its option takes: batches of an overfit run, steps of a benchmark."""
    from trainwiz.core.config.request import PlanRequest

    kind = mode.mode if isinstance(mode, PlanRequest) else mode.kind
    return {"overfit": mode.overfit_batches, "benchmark": mode.benchmark_steps}.get(kind)


def mode_words(mode: str, number: int | None) -> list[str]:
    """The option of a mode; `number` as number_of_mode gives it."""
    from trainwiz.core.config.modes import BENCHMARK_STEPS

    word = MODE_WORDS.get(mode)
    if word is None:
        return []
    usual = {"overfit": 1, "benchmark": BENCHMARK_STEPS}.get(mode)
    return [word] if usual is None else [word, str(number or usual)]


def _machine_words(machine: Machine, profile: Profile | None) -> list[str]:
    """A planned machine, where it is another one than the profile's own."""
    from trainwiz.core.catalog.gpus import load_gpus
    from trainwiz.core.hardware.read import DEFAULT_RAM_BYTES
    from trainwiz.core.profile.profile import ProfileHardware

    if not machine.hypothetical:
        return []
    own = profile.hardware if profile is not None else ProfileHardware()
    words: list[str] = []
    if machine.gpus:
        card, count = machine.gpus[0], len(machine.gpus)
        spec = load_gpus().get(card.name or "")
        memory, capability = card.memory_total_bytes, card.compute_capability
        if spec is None or spec.name != own.gpu:
            words += ["--gpu", card.name] if spec is not None and card.name else []
        if memory is not None and capability is not None and (spec is None or memory != spec.memory_bytes):
            words += ["--gpu-memory", _size(memory)]
        if card.given_tflops is not None:
            words += ["--tflops", f"{card.given_tflops:.12g}"]
        if capability is not None and (spec is None or capability != spec.compute_capability):
            words += ["--capability", capability]
        # Figures given by hand beside no name would be a card without one: the profile's own is named again.
        if words and spec is not None and "--gpu" not in words:
            words = ["--gpu", spec.name, *words]
        if words or count != own.num_gpus:
            words += ["--num-gpus", str(count)]
    if machine.ram_total_bytes != (own.ram_bytes or DEFAULT_RAM_BYTES):
        words += ["--ram", _size(machine.ram_total_bytes)]
    return words


def _size(count: int) -> str:
    """Bytes as `--ram` reads them back."""
    for power, letter in ((30, "G"), (20, "M"), (10, "K")):
        if count % 2**power == 0:
            return f"{count >> power}{letter}"
    return f"{count}B"


# Plan: what a run will be, as one frozen value. Its JSON is what every screen and program shows.


@dataclass(frozen=True, slots=True)
class PlannedModel:
    name: str
    architecture: str | None
    parameters: int | None
    trainable_parameters: int | None
    learnt: str = ""
    """What is about to be learnt, in a few words: "fine-tunes the weights in ./model"."""


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
    """What nvidia-smi would show."""
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
    """Like device_used_bytes, while held-out rows are evaluated or text is generated; None without such rows. The
    other figures are of training; `verdict` is of both."""
    basis: str = ""
    """Where the figures come from in words: "formulas", "traced by layers", "full trace", "measured here on 2026-11-21"."""
    waiting: str = ""
    'What is still on its way or failed: "tracing the whole model…", "the tracer died; ...".'
    host_ram_low_bytes: int | None = None
    host_ram_high_bytes: int | None = None
    """The range of host_ram_bytes, which is a prediction: what CUDA's libraries take there is published, not measured."""
    needed_bytes: int = 0
    """What must be free on the device: allocated memory and the context. `device_used_bytes` and its range are what
    nvidia-smi shows: cached blocks too, which torch gives back before it fails."""
    needed_high_bytes: int = 0
    """With so much free it fits also when all goes against it: `verdict` compares the two with the capacity."""


@dataclass(frozen=True, slots=True)
class TimePlan:
    """Time as a range. None where the device's rate is not known."""

    step_s: float | None
    step_low_s: float | None
    step_high_s: float | None
    steps: int | None
    epochs: float | None
    total_s: float | None
    total_low_s: float | None
    total_high_s: float | None
    evaluation_s: float | None
    saving_s: float | None
    tokens_per_s: float | None
    fraction_of_peak: float | None
    basis: Literal["roofline", "probe", "history"]
    verdict: TimeVerdict | None
    start_low_s: float | None = None
    start_high_s: float | None = None
    """Launcher, imports, model and data, and closing at the end: a part of the total."""
    generation_s: float | None = None
    """Generating text in evaluations: a part of the total, not of evaluation_s."""
    basis_text: str = ""
    """Where the pace comes from in words: "roofline", "measured here on 2026-11-21 (probe)"."""
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
class Plan:
    """The whole preview. `config` is complete: nothing is left to solve."""

    profile: str | None
    machine: Machine
    config: RunConfig
    model: PlannedModel
    task: str
    batch: BatchPlan
    memory: MemoryPlan
    time: TimePlan
    choices: tuple[Choice, ...] = ()
    findings: tuple[Finding, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    work: Workload | None = None
    """What one process computes: what a trace is asked for. Not part of the JSON."""
    usual: Workload | None = None
    """`work` at the lengths of a usual batch, which the time is of. Not part of the JSON."""
    candidates: tuple[Workload, ...] = ()
    """Changed workloads whose peaks the findings name, for traces of their own. Not part of the JSON."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz plan --json` and of plan.json."""
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
            **self.extra,
        }
