"""Evidence: all that is known about an end, as plain values; `diagnose` reads nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.diagnosis.facts import LogFacts

OWN_ERRORS = frozenset({"UsageError", "CannotRunError", "TrainwizError"})


@dataclass(frozen=True, slots=True)
class Failure:
    """What failure-rank<N>.json says."""

    rank: int
    type: str
    message: str
    traceback: str
    time_s: float
    step: int | None
    codes: tuple[str, ...] = ()
    """Codes of the findings, where the error is one of trainwiz."""
    phase: str | None = None
    """What the process was at (core.run.phase), where it says so."""

    @property
    def is_own(self) -> bool:
        """An error of trainwiz itself: a whole sentence, not a foreign exception."""
        return bool(self.codes) or self.type in OWN_ERRORS

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Failure:
        """Takes what is there: the file may come from a process that was dying."""
        rank, time_s, step = document.get("rank"), document.get("time_s"), document.get("step")
        trace, findings = document.get("traceback", ""), document.get("findings")
        return cls(
            rank=rank if isinstance(rank, int) else 0,
            type=str(document.get("type", "Exception")),
            message=str(document.get("message", "")),
            traceback="".join(map(str, trace)) if isinstance(trace, list) else str(trace),
            time_s=float(time_s) if isinstance(time_s, int | float) else float("inf"),
            step=step if isinstance(step, int) else None,
            codes=tuple(str(one.get("code")) for one in findings if isinstance(one, dict))
            if isinstance(findings, list)
            else (),
            phase=phase if isinstance(phase := document.get("phase"), str) else None,
        )


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the kernel says about memory. `told` False: nobody could or did ask it."""

    told: bool = False
    oom_kills: int = 0
    """Processes that it killed for memory in this container while the training ran."""
    lines: tuple[str, ...] = ()
    """Lines of its log about them; they may be of another job."""
    card_lines: tuple[str, ...] = ()
    """Lines of its log about cards that fell off the bus, or have errors that cannot be corrected."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What remedies need to know of the run; None where it is not known."""

    micro_batch: int | None = None
    accumulation: int | None = None
    world_size: int | None = None
    workers: int | None = None
    sequence_length: int | None = None
    learning_rate: float | None = None
    precision: str | None = None
    checkpointing: bool | None = None
    again: tuple[str, ...] = ()
    """Arguments after `trainwiz` that plan the same run anew; empty where they are not known."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What state.json already says about the end."""

    status: str
    cause: str | None = None
    message: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when a training has ended. All of it may be absent."""

    run: str | None = None
    """The name that commands take, quoted for a shell; None for a log from elsewhere."""
    exit_code: int | None = None
    """Of the launcher; negative when a signal ended it."""
    failures: tuple[Failure, ...] = ()
    log: LogFacts = field(default_factory=LogFacts)
    kernel: KernelFacts = field(default_factory=KernelFacts)
    disk_free_bytes: int | None = None
    settings: Settings = field(default_factory=Settings)
    recorded: Recorded | None = None
