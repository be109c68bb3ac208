"""RunState: what state.json says about a run, or why it cannot be used."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from trainwiz.core.errors import os_reason
from trainwiz.core.files import is_file, read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json, write_json_atomic
from trainwiz.core.run.lost import ProcessId, RunLock, lock_seen, lost_words, why_lost
from trainwiz.core.text import numbers_finite, object_in, parse_json, plain_text, text_in, whole_in

# The states of a run.

RunStatus = Literal["prepared", "starting", "running", "stopping", "finished", "failed", "stopped", "lost"]

STATUS_WORDS: dict[RunStatus, str] = {
    "prepared": mark("prepared"),
    "starting": mark("starting"),
    "running": mark("running"),
    "stopping": mark("stopping"),
    "finished": mark("finished"),
    "failed": mark("failed"),
    "stopped": mark("stopped"),
    "lost": mark("lost"),
}
"""State -> its word for people, through `tr`. Files and --json have the state itself."""

Read = TypeVar("Read")

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped", "lost"})
ACTIVE: frozenset[str] = frozenset({"starting", "running", "stopping"})


# state.json that cannot be used: why, and what else in the folder says about the run.

SCHEMA_VERSION = 1
"""Of state.json. Keys that are added do not change it."""


def _document(run: RunFolder) -> Mapping[str, Any] | str:
    """The document of state.json, or one sentence that says why there is none."""
    path = run.state_json
    try:
        document = object_in(parse_json(read_small(path)))
    except OSError as error:
        return tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
    except ValueError:
        return tr("{path} is corrupted: it is not JSON.", path=path)
    if document.get("status") in get_args(RunStatus):
        return document
    return newer_schema(run, document) or tr("{path} is corrupted: it contains no state.", path=path)


def newer_schema(run: RunFolder, document: Mapping[str, Any]) -> str | None:
    """One sentence when a newer trainwiz wrote the state; what it means may not be known here."""
    version = document.get("schema_version")
    if not isinstance(version, int) or version <= SCHEMA_VERSION:
        return None
    return tr(
        "{path} was written by a newer trainwiz (file version {theirs}, this trainwiz supports {ours}).",
        path=run.state_json,
        theirs=version,
        ours=SCHEMA_VERSION,
    )


def _known_without_state(run: RunFolder) -> RunState:
    """As much of a state as plan.json has: enough to list the run and to go on with it."""
    plan = read_json(run.plan_json) or {}
    return RunState(
        name=run.path.name,
        profile=text_in(plan.get("profile")),
        task=text_in(plan.get("task")),
        model=text_in(object_in(plan.get("model")).get("name")),
        max_steps=whole_in(object_in(plan.get("time")).get("steps")),
    )


def result_sentences(outcome: Mapping[str, Any]) -> list[str]:
    """Why a training ended early, and which weights final_model has; nothing where both are those of the last step."""
    early, final = object_in(outcome.get("ended_early")), object_in(outcome.get("final"))
    metric = plain_text(final.get("metric") or early.get("metric") or "", 80)
    sentences = []
    if early:
        words = tr(
            "Early stopping at step {step} of {steps}: {n} evaluations in a row found no better {metric}.",
            step=_whole(outcome.get("step")),
            steps=_whole(outcome.get("max_steps")),
            n=_whole(early.get("evaluations")),
            metric=metric,
        )
        sentences.append(words)
    if final.get("which") == "best" and final.get("step") != outcome.get("step"):
        words = tr(
            "final_model has the weights from step {step}, the best by {metric} ({score}; last step: {last}).",
            step=_whole(final.get("step")),
            metric=metric,
            score=_score(final.get("score")),
            last=_score(outcome.get(metric)),
        )
        sentences.append(words)
    if outcome.get("best_before_training"):
        sentences.append(
            tr(
                "No evaluation was better than the one before step 1: the training did not improve the model on the held-out rows."
            )
        )
    return sentences


def _whole(value: Any) -> str:
    return f"{whole_in(value) or 0:,}"


def _score(value: Any) -> str:
    known = numbers_finite(value)
    return tr("none") if known is None else f"{known:.4g}"


# RunState: what state.json says about a run.
#
# The keeper of a run (core/supervise) is the only writer while it lives; `prepare_run` writes the first
# state. A reader never writes: it applies the rule for lost runs (core/run/lost.py) to what it shows.

HEARTBEAT_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended, for people and programs."""

    code: int
    """0 finished, 1 failed or lost, 130 stopped by the user."""
    cause: str | None = None
    """One of the causes of core/diagnosis; None when it finished."""
    message: str = ""
    remedy: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(slots=True)
class Attempt:
    """One start of the training: the first, a resume, or a retry."""

    number: int
    started_s: float
    ended_s: float | None = None
    resume: str | None = None
    """Name of the checkpoint that it started from; None from the beginning."""
    set_aside: list[str] = field(default_factory=list)
    """Sentences about checkpoints that were renamed before this start."""
    log_offset: int = 0
    """Where its part of train.log begins, in bytes."""
    launcher_exit_code: int | None = None
    """Negative: ended by that signal."""
    status: str | None = None
    exit: dict[str, Any] | None = None
    because: str | None = None
    """The cause for which trainwiz itself started this attempt; None when a person did."""
    signal: str | None = None
    """The signal that ended the attempt before from outside, where there is no other cause."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Key paths of the RunConfig -> values with which this attempt differs from run.yaml."""
    not_retried: str | None = None
    """One sentence: why no attempt followed by itself after this one failed."""


@dataclass(slots=True)
class RunState:
    """The document of state.json. Times are seconds since the epoch."""

    status: RunStatus = "prepared"
    name: str = ""
    profile: str | None = None
    model: str | None = None
    task: str | None = None
    max_steps: int | None = None
    created_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    heartbeat_s: float | None = None
    grace_s: float = 120.0
    """How long a graceful stop may take before what is left is killed: planned first, measured later."""
    window: dict[str, Any] | None = None
    """Where grace_s comes from, a core.launch.actions.StopWindow; None until something was measured."""
    host: str | None = None
    machine: str | None = None
    folder: str | None = None
    """Where the run folder was when its keeper began: a copy of it has no keeper."""
    mark: str | None = None
    """Value of RUN_MARK_VARIABLE in the environment of every process of the run."""
    supervisor: ProcessId | None = None
    launcher: ProcessId | None = None
    workers: list[ProcessId] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    """`planned` and `actual` as one word each, and all that engine.json says."""
    stop: dict[str, Any] | None = None
    """{requested_s, reason, now} once somebody asked for a stop; `verified` once it is over: see core.supervise.ending.verify_gone."""
    outcome: dict[str, Any] | None = None
    exit: RunExit | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def newest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}


# Dataclasses out of JSON that anybody may have written: what is of the wrong type counts as absent.


def read_fields(kind: type, document: Any) -> dict[str, Any]:
    """The fields of a dataclass that a JSON object has, those of the dataclasses in it too; other keys are let be."""
    known = object_in(document)
    found = {name: _of_type(expected, known.get(name)) for name, expected in _types(kind).items()}
    return {name: value for name, value in found.items() if value is not None}


def read_object(kind: type[Read], document: Any) -> Read | None:
    """None where a field is absent that has no default."""
    found = read_fields(kind, document)
    try:
        return kind(**found)
    except TypeError:
        return None


_types = cache(get_type_hints)


def _of_type(expected: Any, value: Any) -> Any:
    """The value as one of this type; None where it is of another one."""
    kind, parts = get_origin(expected) or expected, get_args(expected)
    if kind is UnionType:  # X | None
        return _of_type(parts[0], value)
    if kind is Literal:
        return value if value in parts else None
    if kind in (list, tuple):
        if not isinstance(value, list):
            return None
        items = (_of_type(parts[0], item) for item in value)
        return kind(item for item in items if item is not None)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return read_object(kind, value)
    if kind is float:
        return float(value) if isinstance(value, int | float) else None
    return value if isinstance(value, kind) else None


# The state as a reader shows it.


def read_state(run: RunFolder, now_s: float | None = None, lock: RunLock | None = None) -> RunState:
    """The state of a run; `lost` where core/run/lost.py proves it. `lock`: what the caller itself holds.

    A state.json that cannot be used is `running` while somebody holds the lock (the keeper writes it
    again), `prepared` when nothing was ever trained there, else `lost`. The reason is in its notes.
    """
    now_s = time.time() if now_s is None else now_s
    state = _read(run, now_s, lock)
    if why_lost(run, state, now_s, lock) is not None:
        # The keeper may have written its last word between our reading and our looking for it.
        state = _read(run, now_s, lock)
    why = why_lost(run, state, now_s, lock)
    return state if why is None else _as_lost(state, run, lost_words(why, state))


def _read(run: RunFolder, now_s: float, lock: RunLock | None) -> RunState:
    document = _document(run)
    if not isinstance(document, str):
        return RunState(**read_fields(RunState, document))
    state = dataclasses.replace(_known_without_state(run), notes=[document])
    if lock_seen(run, lock) == "held":
        # Its heartbeat is now: who holds the lock is there.
        return dataclasses.replace(state, status="running", heartbeat_s=now_s)
    if is_file(run.metrics_jsonl) or is_file(run.train_log):
        return _as_lost(state, run, tr("{problem} How the run ended is unknown.", problem=document))
    return state


def _as_lost(state: RunState, run: RunFolder, message: str) -> RunState:
    exit_ = RunExit(1, "unknown", message, remedy=f"trainwiz runs resume {name_for_commands(run.path)}")
    return dataclasses.replace(state, status="lost", ended_s=state.heartbeat_s, exit=exit_)


def write_state(folder: RunFolder, state: RunState) -> None:
    write_json_atomic(folder.state_json, state.to_json())
