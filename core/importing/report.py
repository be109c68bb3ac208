"""What an import took over, and how processes are started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from trainwiz.core.config.values import Precision, Strategy
from trainwiz.core.errors import Finding, Severity, UsageError, sort_findings
from trainwiz.core.language import mark

# How processes are started, under accelerate's own names, and what that means for a run.
#
# An accelerate file and the command that names it are laid over each other here (`{**file.setup, **command.setup}`)
# before they become `engine.*` values: a command that says `--num_machines 2` halves the processes of each node.

PRECISIONS: Mapping[str, Precision] = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""accelerate's mixed_precision -> engine.precision. Beside its fp8 matrix products accelerate computes in bf16
(Accelerator.__init__: `elif self.mixed_precision == "fp8"` enables autocast, whose type is then bf16)."""

SEVERAL_CARDS = frozenset(
    f"MULTI_{name}" for name in ("GPU", "CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU", "NEURON")
)
"""Values of distributed_type that are one whole model for each process."""

ZERO: Mapping[int, Strategy] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
"""DeepSpeed's stage 0 shards nothing."""

DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""


def engine_values(setup: Mapping[str, Any]) -> dict[str, Any]:
    """RunConfig values of a setup; what it leaves open, or says in a way that no run can have, is not in it.

    Read: `distributed_type`, `num_processes` (of all nodes), `num_machines`, `mixed_precision`, `use_cpu`, `gpu_ids`
    ("all" or "0,1"), `zero_stage`, `fsdp_sharding_strategy`, `deepspeed_config_file`.
    """
    values: dict[str, Any] = {}
    precision = PRECISIONS.get(str(setup.get("mixed_precision")).lower())
    if precision is not None:
        values["engine.precision"] = precision
    nodes = whole(setup.get("num_machines")) or 1
    if nodes > 1:
        values["engine.nodes"] = nodes
    processes = whole(setup.get("num_processes"))
    if processes is not None and processes % nodes == 0:
        values["engine.processes"] = processes // nodes
    if setup.get("use_cpu") is True:
        values["engine.device"] = "cpu"
    gpus = gpu_list(setup.get("gpu_ids"))
    if gpus:
        values["engine.gpus"] = gpus
    strategy = _strategy(setup, processes)
    if strategy is not None:
        values["engine.strategy"] = strategy
    return values


def _strategy(setup: Mapping[str, Any], processes: int | None) -> Strategy | None:
    kind = str(setup.get("distributed_type")).upper()
    if kind == "DEEPSPEED" and setup.get("deepspeed_config_file"):
        return None  # which stage it is, that file says
    if kind == "DEEPSPEED":
        stage = setup.get("zero_stage", DEFAULT_ZERO_STAGE)
        return ZERO.get(stage) if isinstance(stage, int) and not isinstance(stage, bool) else None
    if kind == "FSDP":
        return "ddp" if str(setup.get("fsdp_sharding_strategy")).upper() in ("NO_SHARD", "3") else "fsdp"
    if kind in SEVERAL_CARDS:
        return "single" if processes == 1 else "ddp"
    # Several processes under NO are the GPUs of one DataParallel process: each gets one of its own.
    return ("single" if (processes or 1) == 1 else "ddp") if kind in ("NO", "MPS") else None


def whole(value: Any) -> int | None:
    """A count of 1 or more, also as text ("8"); None for all else."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def gpu_list(value: Any) -> list[str]:
    """The GPUs of `gpu_ids` or CUDA_VISIBLE_DEVICES ("0,2"); [] where all are meant."""
    if isinstance(value, list):
        return [str(item).strip() for item in value]
    if value is None or isinstance(value, bool) or str(value).strip().lower() in ("", "all"):
        return []
    return [part.strip() for part in str(value).split(",") if part.strip()]


# What an import says: what became of every setting that was read, and the values for a RunConfig.
#
# A reader is `read(text, file_name) -> Imported`, one for each kind:
#
# - `accelerate.read`: the YAML or JSON of `accelerate config`,
# - `deepspeed.read`: the JSON of DeepSpeed,
# - `training_arguments.read`: arguments of the Trainer as YAML or JSON, and what a Trainer dumped,
# - `python_source.read`: the same as calls in Python source (kind `training_arguments`),
# - `command_line.read`: `accelerate launch`, torchrun, deepspeed or python, alone or in a shell script.
#
# It raises `NotImportable` with one sentence for what is not of its kind. It opens no other file: what the text names
# stands in `Imported.references`, and the caller reads it where it is there.

Kind = Literal["training_arguments", "accelerate", "deepspeed", "launch_command"]


KIND_WORDS: Mapping[Kind, str] = {
    "training_arguments": mark("arguments of the Trainer"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}


class NotImportable(UsageError):
    """The text is not one of the kinds, is half of one, or belongs to another program."""


def refusal(where: str, message: str, code: str = "not_importable") -> NotImportable:
    """One sentence about one place ("FILE" or "FILE:LINE"), to be raised."""
    return NotImportable(Finding(code, "error", where, message))


@dataclass(frozen=True, slots=True)
class Mapped:
    """A setting that has a place: `name` with `value` in the file, `key` of a RunConfig and what it was set to."""

    name: str
    value: Any
    key: str
    set_to: Any
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """An old spelling and the name that its program has for it today."""

    old: str
    new: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A setting that is known and was left out; `why` is one sentence, marked for translation."""

    name: str
    value: Any
    why: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A setting that its program does not have, or whose value cannot be known without running something."""

    name: str
    value: Any
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """Another file that the text names, as it names it."""

    role: Literal["accelerate", "deepspeed", "script", "arguments"]
    path: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of each setting, in the order of the text."""

    mapped: tuple[Mapped, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "mapped": [asdict(one) for one in self.mapped],
            "renamed": [asdict(one) for one in self.renamed],
            "dropped": [asdict(one) for one in self.dropped],
            "unknown": [asdict(one) for one in self.unknown],
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Imported:
    """What one file or command line comes to.

    `values` maps key paths of a RunConfig to values; `setup` holds what decides how the processes are started, under
    accelerate's own names (num_processes counts all nodes, num_machines, distributed_type, use_cpu, gpu_ids,
    mixed_precision, launcher "accelerate|torchrun|deepspeed|python", ...), so that a command line and the file that
    it names can be laid over each other before they become `engine.*` values. `defaults` holds what the program takes
    for settings that the text leaves out, where that differs from a plan of trainwiz: any value of any text wins.
    """

    kind: Kind
    file: str
    values: Mapping[str, Any]
    report: Report
    setup: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def place_of(self, key: str) -> str:
        """ "FILE:LINE" of the setting that gave the value at `key`, or the file."""
        for one in reversed(self.report.mapped):
            if one.key == key:
                return f"{one.file or self.file}:{one.line}" if one.line else one.file or self.file
        return self.file


class Collector:
    """What a reader fills while it goes through the settings of one text."""

    def __init__(self, kind: Kind, file: str) -> None:
        self.kind: Kind = kind
        self.file = file
        self.values: dict[str, Any] = {}
        self.setup: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self._mapped: list[Mapped] = []
        self._renamed: list[Renamed] = []
        self._dropped: list[Dropped] = []
        self._unknown: list[Unknown] = []
        self._findings: list[Finding] = []
        self.references: list[Reference] = []

    def map(self, name: str, value: Any, key: str, set_to: Any, line: int | None = None) -> None:
        """`name` has a place: the value at `key` becomes `set_to`."""
        self.values[key] = set_to
        self._mapped.append(Mapped(name, value, key, set_to, line, self.file))

    def mapped(self) -> tuple[Mapped, ...]:
        """What has a place so far."""
        return tuple(self._mapped)

    def take_back(self, name: str, why: str) -> None:
        """A setting that was mapped and turns out to contradict another one: dropped, with the values that it gave."""
        for one in [one for one in self._mapped if one.name == name]:
            self._mapped.remove(one)
            if not any(other.key == one.key for other in self._mapped):
                self.values.pop(one.key, None)
            self.drop(name, one.value, why, one.line)

    def set_all(self, key: str, value: Any) -> None:
        """Several settings that together mean `value`: each of them gave it."""
        self.values[key] = value
        self._mapped = [replace(one, set_to=value) if one.key == key else one for one in self._mapped]

    def rename(self, old: str, new: str, line: int | None = None) -> None:
        self._renamed.append(Renamed(old, new, line, self.file))

    def drop(self, name: str, value: Any, why: str, line: int | None = None) -> None:
        """`why` is a sentence from `mark`, or one that `tr` has translated."""
        self._dropped.append(Dropped(name, value, why, line, self.file))

    def unknown(self, name: str, value: Any, line: int | None = None) -> None:
        self._unknown.append(Unknown(name, value, line, self.file))

    def find(self, code: str, severity: Severity, message: str, line: int | None = None) -> None:
        """A finding at a line of this text."""
        self._findings.append(Finding(code, severity, f"{self.file}:{line}" if line else self.file, message))

    def add(self, finding: Finding) -> None:
        self._findings.append(finding)

    def refer(
        self, role: Literal["accelerate", "deepspeed", "script", "arguments"], path: str, line: int | None = None
    ) -> None:
        """The text names another file."""
        self.references.append(Reference(role, path, line, self.file))

    def done(self) -> Imported:
        report = Report(
            tuple(self._mapped),
            tuple(self._renamed),
            tuple(self._dropped),
            tuple(self._unknown),
            sort_findings(self._findings),
        )
        return Imported(
            self.kind,
            self.file,
            dict(self.values),
            report,
            dict(self.setup),
            tuple(self.references),
            dict(self.defaults),
        )
