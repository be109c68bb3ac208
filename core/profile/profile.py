"""Profile: a training setup for one kind of machine, as values with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


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
    variants: tuple[str, ...] = ()
    """Not empty: the profile stands for one of these, picked by the memory of the GPU that is there."""

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz profiles show --json`."""
        document = asdict(self)
        document["values"] = dict(self.values)
        document["reasons"] = dict(self.reasons)
        document["set_by"] = dict(self.set_by)
        document["claims"] = dict(self.claims)
        document["variants"] = list(self.variants)
        return document
