"""The report of a campaign: a table for people, a document for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.faults.judge import KINDS, Problem
from tools.faults.observation import Observation

TITLES = {
    "orphan": "orphans", "lost_steps": "steps lost", "wrong_resume": "wrong resumes", "traceback": "tracebacks",
    "hang": "hangs", "diagnosis": "diagnoses", "ending": "ends", "keeper": "keeper",
    "campaign": "not judged",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    seen: Observation
    problems: tuple[Problem, ...]

    @property
    def sign(self) -> str:
        if self.seen.not_done:
            return "-"
        if not self.seen.injected:
            return "late"
        return "✗" if self.problems else "✓"


def line(verdict: Verdict) -> str:
    """One fault in one line, and its problems below it."""
    seen = verdict.seen
    end = f"{seen.end.status}{' ' + seen.end.cause if seen.end.cause else ''}"
    after = "" if seen.end.status == seen.last.status else f" -> {seen.last.status}"
    attempts = f", {len(seen.starts_before_resume)} attempts" if len(seen.starts_before_resume) > 1 else ""
    attempts += "".join(f", {note}" for note in seen.notes)
    first = f"{verdict.sign:4} {seen.fault}: {seen.not_done or end + after + attempts} ({seen.seconds:.0f} s)"
    return "\n".join([first, *(f"       {problem.kind}: {problem.text}" for problem in verdict.problems)])


def table(verdicts: list[Verdict], seed: int, seconds: float) -> str:
    """A row for each family, a column for each way to go wrong: the number of faults it befell."""
    families = sorted({verdict.seen.fault.family for verdict in verdicts})
    head = ["family", "faults", "at random", *(TITLES[kind] for kind in KINDS)]
    rows = [head, *(_row(family, [v for v in verdicts if v.seen.fault.family == family]) for family in families)]
    rows.append(_row("all", verdicts))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    struck = [verdict for verdict in verdicts if verdict.seen.injected]
    missed = len(verdicts) - len(struck)
    tensors = sum(verdict.seen.compared for verdict in struck)
    exact = sum(verdict.seen.last.status == "finished" for verdict in struck)
    return "\n".join(
        [
            f"Fault campaign, seed {seed}: {len(struck)} faults in {seconds / 60:.1f} min; "
            f"{exact} runs compared with undisturbed ones, {tensors:,} tensors",
            *lines,
            f"{missed} more struck nothing: the run was over before, or this machine does not allow them"
            if missed
            else "",
        ]
    )


def _row(name: str, verdicts: list[Verdict]) -> list[str]:
    struck = [verdict for verdict in verdicts if verdict.seen.injected]
    at_random = sum(verdict.seen.fault.random for verdict in struck)
    befell = Counter(kind for verdict in struck for kind in {problem.kind for problem in verdict.problems})
    return [name, str(len(struck)), str(at_random), *(str(befell[kind]) for kind in KINDS)]


def document(verdicts: list[Verdict], seed: int, seconds: float) -> dict[str, Any]:
    struck = [verdict for verdict in verdicts if verdict.seen.injected]
    kinds = Counter(kind for verdict in struck for kind in {problem.kind for problem in verdict.problems})
    return {
        "seed": seed,
        "seconds": seconds,
        "faults": len(struck),
        "at_random": sum(verdict.seen.fault.random for verdict in struck),
        "problems": {kind: kinds[kind] for kind in KINDS},
        "trials": [_trial(verdict) for verdict in verdicts],
    }


def _trial(verdict: Verdict) -> dict[str, Any]:
    seen = verdict.seen
    return {
        "fault": asdict(seen.fault),
        "injected": seen.injected,
        "not_done": seen.not_done,
        "seconds": seen.seconds,
        "end": asdict(seen.end),
        "last": asdict(seen.last),
        "starts": [asdict(start) for start in seen.starts],
        "compared": seen.compared,
        "codes": seen.codes,
        "problems": [asdict(problem) for problem in verdict.problems],
        "shown": seen.shown if verdict.problems else None,
    }


def write(path: Path, verdicts: list[Verdict], seed: int, seconds: float) -> None:
    text = json.dumps(document(verdicts, seed, seconds), ensure_ascii=False, indent=1, default=sorted)
    path.write_text(text + "\n", encoding="utf-8")
