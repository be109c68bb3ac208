"""Facts: everything that the findings of a plan are judged on."""

from __future__ import annotations

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
from trainwiz.core.plan.command import plan_command
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

    @property
    def steps(self) -> int | None:
        return self.time.steps

    def remedy(self, text: str, changes: Mapping[str, Any]) -> Remedy:
        """A remedy that a front end can apply and a shell can run."""
        return Remedy(text, plan_command(self.config, self.machine, self.profile, changes), changes)


def gib(size: float) -> str:
    """ "5.4 GiB", and "74 MiB" for what would round to little or nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 2 or size == 0 else f"{size / 2**20:.0f} MiB"


def percent(share: float, digits: int = 0, signed: bool = False) -> str:
    """0.35 -> "35 %"; with a sign -0.25 -> "-25 %"."""
    return f"{share * 100:{'+' if signed else ''}.{digits}f} %"


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
