"""Facts: everything that the findings of a plan are judged on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.memory import MemoryEstimate
from trainwiz.core.estimate.time import Rate
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Remedy
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.command import plan_command
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, TimePlan
from trainwiz.core.profile.profile import Profile


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
    evidence: Evidence = NO_EVIDENCE

    @property
    def steps(self) -> int | None:
        return self.time.steps

    def remedy(self, text: str, changes: Mapping[str, Any]) -> Remedy:
        """A remedy that a front end can apply and a shell can run."""
        return Remedy(text, plan_command(self.config, self.machine, self.profile, changes), changes)
