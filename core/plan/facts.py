"""Facts: everything that the findings of a plan are judged on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.memory import MemoryEstimate
from trainwiz.core.estimate.time import Rate
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Remedy
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, TimePlan
from trainwiz.core.profile.profile import Profile

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Facts:
    """One plan, before its findings. `config` is complete."""

    machine: Machine
    config: RunConfig
    devices: Devices
    work: Workload | None
    """None when the architecture is not known; `unknown_architecture` then says why."""
    unknown_architecture: str
    estimate: MemoryEstimate
    memory: MemoryPlan
    batch: BatchPlan
    time: TimePlan
    rate: Rate | None
    data: DataSummary | None
    profile: Profile | None

    @property
    def steps(self) -> int | None:
        return self.time.steps

    def remedy(self, text: str, changes: Mapping[str, Any]) -> Remedy:
        """A remedy that a front end can apply and a shell can run."""
        return Remedy(text, self.command(changes), changes)

    def command(self, changes: Mapping[str, Any]) -> str:
        """The plan again with `changes`: profile, the user's own values, then the changes."""
        words = ["trainwiz", "plan"]
        if self.config.profile is not None:
            words += ["--profile", self.config.profile]
        words += self._machine_words()
        yours = {key: self.config.value(key) for key, origin in self.config.origins.items() if origin.origin == "you"}
        for key, value in {**yours, **changes}.items():
            if key not in ("profile", "name"):
                words += ["--set", f"{key}={_yaml(value)}"]
        return shlex.join(words)

    def _machine_words(self) -> list[str]:
        """The machine, where it is another one than the profile's own."""
        if not self.machine.hypothetical or not self.machine.gpus:
            return []
        name, count = self.machine.gpus[0].catalogue_name, len(self.machine.gpus)
        own = self.profile is not None and (name, count) == (self.profile.hardware.gpu, self.profile.hardware.num_gpus)
        if own or name is None:
            return []
        return ["--gpu", name, "--num-gpus", str(count)]


def _yaml(value: Any) -> str:
    """A value as `--set` reads it back: JSON is YAML, and a plain word stays plain."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(hasattr(item, "model_dump") for item in value):
        value = [item.model_dump(exclude_defaults=True) for item in value]
    return json.dumps(value)


def gib(size: float) -> str:
    """ "5.4 GiB"."""
    return f"{size / GIB:.1f} GiB"


def duration(seconds: float) -> str:
    """Two significant figures of the unit that a person would use: "35 years", "11 days", "460 s"."""
    if seconds < 120:
        return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    for unit, size in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def duration_range(low: float, high: float) -> str:
    """ "7 to 18 years": the unit once where both share it."""
    first, second = duration(low), duration(high)
    if first == second:
        return first
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{first} to {second}"
