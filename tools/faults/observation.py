"""Observation: what was seen of one trial. The judge looks at nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.faults.fault import Fault

ATTEMPT = re.compile(r"=== trainwiz: attempt (\d+), .*(?:resumes from checkpoint-(\d+)|starts from the beginning) ===")
SAVED = re.compile(r"^checkpoint-(\d+) saved in", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt, as train.log tells it."""

    number: int
    from_step: int
    """0 from the beginning."""
    saved: tuple[int, ...] = ()
    """Steps whose saves were over, in the training's own words."""


@dataclass(frozen=True, slots=True)
class End:
    """How the run stood when it was left, as its state says."""

    status: str
    cause: str | None = None
    message: str = ""
    failed: tuple[tuple[str | None, str], ...] = ()
    """(cause, message) of the attempts before the last, each of which trainwiz let follow another."""
    last_step: int = 0
    """Newest step in metrics.jsonl."""
    on_purpose_at_once: bool = False
    """A stop that was asked not to save."""


@dataclass(slots=True)
class Observation:
    fault: Fault
    injected: bool = False
    not_done: str | None = None
    """Why the fault could not be injected."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What was seen on the way, for the report."""
    hung: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    """Command -> all that it showed."""
    codes: dict[str, int | None] = field(default_factory=dict)
    end: End = field(default_factory=lambda: End("none"))
    """After the fault."""
    diagnosed: str | None = "(not asked)"
    """The cause that `trainwiz diagnose` names for that end."""
    last: End = field(default_factory=lambda: End("none"))
    """After the run was taken up again, where it had not finished."""
    starts: list[Start] = field(default_factory=list)
    starts_before_resume: list[Start] = field(default_factory=list)
    damaged: frozenset[int] = frozenset()
    """Steps of checkpoints that the fault itself destroyed."""
    differences: list[str] = field(default_factory=list)
    """Tensors and losses that are not those of the undisturbed run."""
    compared: int = 0
    """Tensors that were compared."""
    keeper_failures: list[str] = field(default_factory=list)
    """Tracebacks in supervisor.log: no user sees them, and they are defects all the same."""


def starts_of(log: str) -> list[Start]:
    """The attempts in a train.log."""
    marks = list(ATTEMPT.finditer(log))
    ends = [mark.start() for mark in marks[1:]] + [len(log)] * bool(marks)
    return [
        Start(int(mark[1]), int(mark[2] or 0), tuple(map(int, SAVED.findall(log, mark.end(), end))))
        for mark, end in zip(marks, ends, strict=True)
    ]


def with_what_came_after(whole: str, damaged: str) -> str:
    """A log before its damage, and what was added since: after the part that was left of it, if there is one."""
    pairs = enumerate(zip(whole, damaged, strict=False))
    left = next((place for place, (one, other) in pairs if one != other), min(len(whole), len(damaged)))
    # An emptied log that goes on begins with the same words as the old one, up to the number of the attempt.
    return whole + damaged[left if left > len("=== trainwiz: attempt ") else 0 :]


def metric_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl that are rows."""
    rows = []
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def last_step(folder: Path) -> int:
    return max((row["step"] for row in metric_rows(folder)), default=0)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
