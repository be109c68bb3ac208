"""What a run says of itself: its attempts, what recovery changed, what it does now, what ails it, why no start."""

from __future__ import annotations

import itertools
import json
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args

from trainwiz.core.errors import os_reason
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json, write_in_place, write_json_atomic
from trainwiz.core.run.state import Attempt, RunState, newer_schema, read_object
from trainwiz.core.text import objects_in, plain_text, text_in

# recovery.json: what trainwiz changed by itself to get a run through; run.yaml stays what was planned.
#
#     {"format": "trainwiz.recovery/1",
#      "attempts": [{"attempt": 2, "because": "cuda_oom", "after_step": 5, "time_s": 1795344000.0,
#                    "changes": {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}}]}
#
# `changes` of an entry are all differences from run.yaml that hold from that attempt on, not only the
# new ones. The keeper of the run is the only writer. Reading needs no configuration: see
# `core.launch.start.changed_config` for the RunConfig that an attempt really has.

RECOVERY_JSON = "recovery.json"
FORMAT = "trainwiz.recovery/1"


@dataclass(frozen=True, slots=True)
class Recovery:
    """One start that trainwiz made by itself."""

    attempt: int
    because: str = "unknown"
    """The cause of the failure before it."""
    after_step: int | None = None
    """Step of the checkpoint that it goes on from; None from the beginning."""
    time_s: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)


def read_recoveries(folder: RunFolder) -> list[Recovery]:
    """In the order of the attempts; entries that cannot be read are passed over."""
    entries = objects_in((read_json(folder.file(RECOVERY_JSON)) or {}).get("attempts"))
    return [known for entry in entries if (known := read_object(Recovery, entry)) is not None]


def changes_now(folder: RunFolder) -> dict[str, Any]:
    """Key path -> value, as they hold for the newest attempt; empty when nothing was changed."""
    recoveries = read_recoveries(folder)
    return dict(recoveries[-1].changes) if recoveries else {}


def write_recoveries(folder: RunFolder, recoveries: Iterable[Recovery]) -> None:
    """Raises OSError."""
    entries = [asdict(entry) for entry in recoveries]
    write_json_atomic(folder.file(RECOVERY_JSON), {"format": FORMAT, "attempts": entries})


# Attempts in words: which one this is, why there is another one, and with what it differs from the plan.

CAUSE_WORDS: Mapping[str, str] = {
    "cuda_oom": mark("GPU memory ran out"),
    "host_oom": mark("RAM ran out"),
    "nccl_timeout": mark("NCCL timed out"),
    "nccl_error": mark("NCCL failed"),
    "dataloader_worker_killed": mark("a loader worker was killed"),
    "port_in_use": mark("its port was in use"),
    "unknown": mark("it failed"),
}
"""Cause that is retried -> what happened, as part of a sentence. Files and --json have the cause itself."""
MICRO, ACCUMULATION = "batch.micro_batch_size", "batch.gradient_accumulation_steps"
CHECKPOINT = "checkpoint-"


def cause_words(attempt: Attempt) -> str:
    """Why trainwiz started it; of a cause that nobody foresaw, its own name."""
    cause = attempt.because or "unknown"
    if cause == "unknown" and attempt.signal:
        return tr("an external {signal} terminated it", signal=plain_text(attempt.signal, 20))
    return tr(CAUSE_WORDS[cause]) if cause in CAUSE_WORDS else plain_text(cause, 80).replace("_", " ")


def attempt_words(attempt: Attempt, batch: Mapping[str, Any]) -> str:
    """ "attempt 2, as GPU memory ran out; from step 5: 3 × 16 instead of 6 × 8"; `batch` is that of plan.json.

    Empty for a first attempt that runs as planned.
    """
    changes = "; ".join(change_words(attempt.changes, batch))
    if attempt.number <= 1 and not changes:
        return ""
    values = {"number": attempt.number, "where": origin_words(attempt.resume)}
    if attempt.because is None:
        said = tr("attempt {number}, {where}", **values)
    else:
        said = tr("attempt {number}, because {cause}; {where}", cause=cause_words(attempt), **values)
    return tr("{attempt}: {changes}", attempt=said, changes=changes) if changes else said


def recovered_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that trainwiz started by itself since a person last started the run."""
    newest_first = itertools.takewhile(lambda attempt: attempt.because is not None, reversed(attempts))
    return [*newest_first][::-1]


def origin_words(resume: str | None) -> str:
    """Where an attempt began; `resume` is the name of a checkpoint."""
    if resume is None:
        return tr("from the beginning")
    step = resume.removeprefix(CHECKPOINT)
    return tr("from step {step}", step=f"{int(step):,}") if step.isdecimal() else tr("from {name}", name=resume)


def change_words(changes: Mapping[str, Any], batch: Mapping[str, Any]) -> Iterator[str]:
    """What differs from the plan, one part for each thing; the two factors of the batch are one."""
    if MICRO in changes or ACCUMULATION in changes:
        planned = batch.get("micro_batch"), batch.get("accumulation")
        now = changes.get(MICRO, planned[0]), changes.get(ACCUMULATION, planned[1])
        yield tr("{new} instead of {old}", new=_product(now), old=_product(planned))
    for key, value in changes.items():
        if key not in (MICRO, ACCUMULATION):
            yield f"{plain_text(key, 60)} = {plain_text(value, 60)}"


def _product(factors: tuple[Any, Any]) -> str:
    return " × ".join(f"{factor:,}" if isinstance(factor, int) else "?" for factor in factors)


# phase.json: what the training does right now, written by rank 0 of the training at each change.
#
#     {"phase": "tokenising", "since_s": 1795344000.0, "step": 0, "detail": "12,000 of 80,000 rows"}
#
# A watcher needs it to tell work without steps (tokenising, compiling, evaluating) from a run that hangs.

PHASE_JSON = "phase.json"
Phase = Literal[
    "preparing", "tokenising", "loading", "compiling", "training", "evaluating", "generating", "saving", "paused",
    "finishing",
]  # fmt: skip
"""`paused`: a save waits for room on the disk, and goes on by itself."""


@dataclass(frozen=True, slots=True)
class PhaseNow:
    phase: Phase
    since_s: float
    """Unix time."""
    step: int | None = None
    detail: str = ""


def read_phase(folder: RunFolder) -> PhaseNow | None:
    """None where the training has not said it (yet), or nonsense."""
    return read_object(PhaseNow, read_json(folder.file(PHASE_JSON)))


def write_phase(
    folder: RunFolder, phase: Phase, step: int | None = None, detail: str = "", since_s: float = 0.0
) -> None:
    """`since_s`: when the phase began (Unix time), now without it. Raises OSError."""
    document = {"phase": phase, "since_s": since_s or time.time(), "step": step, "detail": detail}
    try:
        write_json_atomic(folder.file(PHASE_JSON), document)
    except OSError:
        # "Paused for lack of room" must be said on a full disk: there is room in the block that the file has.
        write_in_place(folder.file(PHASE_JSON), json.dumps(document, ensure_ascii=False) + "\n")


# What a training does right now, in words: the phase of phase.json with what it says of itself.

PHASE_WORDS: Mapping[Phase, str] = {
    "preparing": mark("preparing"),
    "loading": mark("loading model and data"),
    "tokenising": mark("tokenizing"),
    "compiling": mark("compiling the model"),
    "training": mark("training"),
    "evaluating": mark("evaluating"),
    "generating": mark("generating texts"),
    "saving": mark("saving"),
    "paused": mark("paused"),
    "finishing": mark("finishing"),
}
LONGEST_DETAIL = 200


def phase_words(now: PhaseNow, lasted: str = "") -> str:
    """ "tokenising 12,000 of 80,000 rows, for 3 min"; the detail is in the language of the training.

    `lasted`: how long it has, in words.
    """
    word, detail = tr(PHASE_WORDS[now.phase]), plain_text(now.detail, LONGEST_DETAIL)
    if detail and now.phase == "tokenising":
        word, detail = tr("tokenizing {detail}", detail=detail), ""
    if lasted:
        word = tr("{what}, for {time}", what=word, time=lasted)
    return tr("{phase}: {detail}", phase=word, detail=detail) if detail else word


def why_not_start(run: RunFolder, state: RunState, *, resume: bool) -> str | None:
    """None when a start may be tried; who starts takes the lock first."""
    newer = newer_schema(run, read_json(run.state_json) or {})
    if newer:
        return tr("{problem} Update trainwiz to resume {name}.", problem=newer, name=run.path.name)
    if state.status == "stopping":
        return tr("{name} is stopping. When it has ended, resume it with: trainwiz runs resume {typed}", **_named(run))
    if state.is_active and state.host in (None, platform.node()):
        return runs_already(run)
    if state.is_active:
        return tr(
            "{name} is already running on {host}. Monitor it with: trainwiz monitor {typed}",
            host=state.host,
            **_named(run),
        )
    if resume and state.status == "finished":
        return tr("{name} has finished; there is nothing to resume.", name=run.path.name)
    if not resume and state.status != "prepared":
        return tr(
            "{name} was started before ({status}). Resume it with: trainwiz runs resume {typed}",
            status=tr(state.status),
            **_named(run),
        )
    return None


def not_usable(run: RunFolder, error: OSError) -> str:
    return tr("The run folder {path} cannot be used: {reason}.", path=run.path, reason=os_reason(error))


def being_cleared_up(run: RunFolder) -> str:
    """Somebody holds the lock of a run that is not active."""
    return tr(
        "{name} is being started or cleaned up right now; try again in a few seconds: trainwiz runs resume {typed}",
        **_named(run),
    )


def runs_already(run: RunFolder) -> str:
    return tr("{name} is already running. Monitor it with: trainwiz monitor {typed}", **_named(run))


def _named(run: RunFolder) -> dict[str, str]:
    return {"name": run.path.name, "typed": name_for_commands(run.path)}


# Advice: one line about a run, with its level.

AdviceLevel = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of the advice panel."""

    code: str
    level: AdviceLevel
    text: str
    remedy: str | None = None
    """What to do about it, as a sentence or a command."""

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.level, "text": self.text, "remedy": self.remedy}


# Advice that the run record carries: written by whoever watches the run, shown without knowing by whom.

ADVICE_JSONL = "advice.jsonl"
"""In a run folder, one object a line: `{time_s, code, severity, text, remedy, where}`.

`severity` is error, warning, note or ok; `text` is a sentence; `remedy` a sentence or a command, or
absent. A later line with the same `code` and `where` takes the place of an earlier one, and one with
`"severity": "cleared"` takes it away.
"""
MOST_ADVICE = 50
LONGEST_TEXT = 1_000


class AdviceFile:
    """advice.jsonl of one run; each look reads what is new of its tail."""

    @classmethod
    def of(cls, run: RunFolder) -> AdviceFile:
        return cls(JsonLinesTail(run.file(ADVICE_JSONL)))

    def __init__(self, tail: JsonLinesTail) -> None:
        self._tail = tail
        self._standing: dict[tuple[str, str], Mapping[str, Any]] = {}

    def read(self) -> list[Mapping[str, Any]]:
        """What stands now, the newest MOST_ADVICE."""
        rows = self._tail.read_new()
        standing = {} if self._tail.began_anew else self._standing
        for row in rows:
            key = str(row.get("code") or row.get("text")), str(row.get("where"))
            standing.pop(key, None)
            if row.get("severity") != "cleared":
                standing[key] = row
        self._standing = dict([*standing.items()][-MOST_ADVICE:])
        return [*self._standing.values()]


def advice_of(recorded: Iterable[Any]) -> Iterable[Advice]:
    """Objects with `text` (or `message`) and perhaps `severity`, `code` and `remedy`; others are passed over."""
    for item in objects_in([*recorded]):
        text, cure = item.get("text") or item.get("message"), text_in(item.get("remedy"))
        if isinstance(text, str) and text:
            known = item.get("severity") if item.get("severity") in get_args(AdviceLevel) else "note"
            yield Advice(
                plain_text(item.get("code") or "recorded", 80),
                cast(AdviceLevel, known),
                plain_text(text, LONGEST_TEXT),
                cure and plain_text(cure, LONGEST_TEXT),
            )
