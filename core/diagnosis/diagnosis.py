"""Diagnosis: the cause of an end, what proves it, and what can be done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.diagnosis.causes import Cause, Confidence


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was found. `text` is plain (no control characters) and not endless."""

    line: int | None
    """Of the file `source`, from 1; None where it is no line of a file."""
    text: str
    source: str
    """Name of the log or file, "failure-rank0.json", "kernel", "state.json", ..."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do. `command` can be pasted into a shell; None where there is none for it."""

    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a training ended, or what ails it."""

    cause: Cause | None
    """None: nothing failed (it finished, runs, or was never started); `message` says which."""
    confidence: Confidence
    message: str
    """Whole sentences."""
    evidence: tuple[Proof, ...] = ()
    """What proves the cause; the first is the strongest."""
    remedies: tuple[Remedy, ...] = ()
    """The best first."""
    step: int | None = None
    """Last optimizer step that was finished before it, where that is known."""
    rank: int | None = None
    """Global rank that failed first, where that is known."""
    signal: str | None = None
    """Name of the signal that ended a training process or the launcher from outside, like "SIGKILL"."""
    during: str | None = None
    """"evaluation", "saving" or "loading" where the failure says so; None: the training itself, or not known."""

    @property
    def remedy(self) -> str:
        """The remedies as one text, for state.json."""
        return " ".join(f"{one.text} {one.command or ''}".strip() for one in self.remedies[:1])

    @property
    def proofs(self) -> tuple[str, ...]:
        """The texts of the evidence alone, for state.json."""
        return tuple(proof.text for proof in self.evidence)

    def to_json(self) -> dict[str, Any]:
        """What `trainwiz diagnose --json` prints."""
        return asdict(self)
