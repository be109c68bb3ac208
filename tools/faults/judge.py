"""The judge: an Observation -> what was wrong with it. Pure, so that it can be tested itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tools.faults.expectation import names_the_signal, right_causes_on_the_way, right_ends
from tools.faults.observation import End, Observation

ProblemKind = Literal[
    "orphan", "lost_steps", "wrong_resume", "traceback", "hang", "diagnosis", "ending", "keeper", "campaign"
]
KINDS: tuple[ProblemKind, ...] = (
    "orphan", "lost_steps", "wrong_resume", "traceback", "hang", "diagnosis", "ending", "keeper",
    "campaign",
)  # fmt: skip
EXIT_CODES = frozenset({0, 1, 2, 3, 129, 130})
"""What a command of trainwiz may answer when nobody sent it a signal."""


@dataclass(frozen=True, slots=True)
class Problem:
    kind: ProblemKind
    text: str


def judge(seen: Observation) -> list[Problem]:
    """All that was wrong; empty when the run survived as it should."""
    return [*_processes(seen), *_words(seen), *_end(seen), *_steps(seen), *_model(seen)]


def _processes(seen: Observation) -> Iterator[Problem]:
    yield from (Problem("orphan", text) for text in seen.orphans)
    yield from (Problem("hang", text) for text in seen.hung)
    yield from (Problem("keeper", text) for text in seen.keeper_failures)


def _words(seen: Observation) -> Iterator[Problem]:
    for command, text in seen.shown.items():
        if "Traceback (most recent call last)" in text or "╭─ Traceback" in text:
            yield Problem("traceback", f"`{command}` showed: {text[text.find('Traceback') :][:600]}")
    for command, code in seen.codes.items():
        hit = seen.fault.target == "front" and command == "start"
        if code is not None and code not in EXIT_CODES and not hit and seen.fault.how != "closed terminal":
            yield Problem("ending", f"`{command}` ended with exit code {code}")


def _end(seen: Observation) -> Iterator[Problem]:
    if seen.hung:
        return
    yield from _right_end(seen, seen.end)
    if seen.last.status not in ("finished", "refused"):
        yield Problem("ending", f"taken up again it is {seen.last.status}: {seen.last.cause}, {seen.last.message}")


def _right_end(seen: Observation, end: End) -> Iterator[Problem]:
    right = right_ends(seen.fault)
    if end.status not in right:
        yield Problem("ending", f"it is {end.status} ({end.cause}: {end.message}), not {' or '.join(right)}")
    elif end.cause not in right[end.status]:
        yield Problem("diagnosis", f"{end.status} for {end.cause} ({end.message}), not for {_named(right[end.status])}")
    elif end.status == "failed" and names_the_signal(seen.fault) and seen.fault.how not in end.message:
        yield Problem("diagnosis", f"the sentence does not name {seen.fault.how}: {end.message}")
    elif seen.diagnosed not in (*right[end.status], "(not asked)"):
        yield Problem("diagnosis", f"`trainwiz diagnose` says {seen.diagnosed}, not {_named(right[end.status])}")
    allowed = right_causes_on_the_way(seen.fault)
    for cause, message in end.failed:
        if cause not in allowed:
            yield Problem("diagnosis", f"an attempt failed for {cause} ({message}), not for {_named(allowed)}")


def _named(causes: frozenset[str | None]) -> str:
    return " or ".join(sorted(map(str, causes)))


def _steps(seen: Observation) -> Iterator[Problem]:
    saved = 0
    for start in seen.starts:
        if start.from_step < saved:
            yield Problem("lost_steps", f"attempt {start.number} began at step {start.from_step}; {saved} was saved")
        saved = max([saved, *(step for step in start.saved if step not in seen.damaged)])
    end = seen.end
    if end.status == "stopped" and not end.on_purpose_at_once:
        kept = max((step for start in seen.starts_before_resume for step in start.saved), default=0)
        if end.last_step > kept:
            yield Problem("lost_steps", f"stopped at step {end.last_step} with step {kept} saved")


def _model(seen: Observation) -> Iterator[Problem]:
    if seen.last.status == "finished":
        yield from (Problem("wrong_resume", text) for text in seen.differences[:5])
        if not seen.compared:
            yield Problem("wrong_resume", "nothing could be compared")
