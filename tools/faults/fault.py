"""Fault: one thing that is done to one run, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["signal", "stop", "disk", "training", "data", "file", "start", "clock"]
Front = Literal["headless", "screen"]
"""What the user sits at: the headless command, which owns its run, or the full-screen wizard, which does not."""
MomentKind = Literal["time", "preparation", "step", "saving", "evaluation", "final", "rest"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When. `at` is a share of an undisturbed run's time for "time", a step for "step" and "saving"."""

    kind: MomentKind
    at: float = 0.0

    def __str__(self) -> str:
        words = {"time": f"{self.at:.0%} of the time", "step": f"step {self.at:.0f}", "rest": "stopped half way"}
        if self.kind == "saving":
            return f"a save from step {self.at:.0f} on"
        return words.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class Fault:
    """`how` is said in the words of its family: a signal's name, a damage, a text for TRAINWIZ_FAULTS, seconds."""

    number: int
    family: Family
    scenario: str
    target: str
    how: str
    moment: Moment
    front: Front = "headless"
    random: bool = False
    """Whether the seed chose its moment."""

    def __str__(self) -> str:
        where = f"{self.scenario}, {self.front}"
        return f"#{self.number} {self.family}: {self.how} -> {self.target} at {self.moment} ({where})"
