"""RunState: what state.json says about a run, or why it cannot be used."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from trainwiz.core.errors import os_reason
from trainwiz.core.files import read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json, write_json_atomic
from trainwiz.core.run.lost import Observation, ProcessId, RunLock, lost_words, why_lost
from trainwiz.core.text import numbers_finite, object_in, parse_json, plain_text, whole_in

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

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped", "lost"})
ACTIVE: frozenset[str] = frozenset({"starting", "running", "stopping"})


# state.json that cannot be used: why, and what else in the folder says about the run.

SCHEMA_VERSION = 1
"""Of state.json. Keys that are added do not change it."""


def read_document(run: RunFolder) -> dict[str, Any] | str:
    """The document of state.json, or one sentence that says why there is none."""
    path = run.state_json
    try:
        document = parse_json(read_small(path))
    except OSError as error:
        return tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
    except ValueError:
        return tr("{path} is corrupted: it is not JSON.", path=path)
    if not isinstance(document, dict):
        document = {}
    if document.get("status") not in get_args(RunStatus):
        return newer_schema(run, document) or tr("{path} is corrupted: it contains no state.", path=path)
    return document


def newer_schema(run: RunFolder, document: dict[str, Any]) -> str | None:
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


def known_without_state(run: RunFolder) -> dict[str, Any]:
    """As much of a state as plan.json has: enough to list the run and to go on with it."""
    plan = read_json(run.plan_json) or {}
    model, time = object_in(plan.get("model")), object_in(plan.get("time"))
    known = {"profile": plan.get("profile"), "task": plan.get("task"), "model": model.get("name")}
    return {"name": run.path.name, **known, "max_steps": time.get("steps")}


def result_sentences(outcome: Mapping[str, Any]) -> list[str]:
    """Why a training ended early, and which weights final_model has; nothing where both are those of the last step."""
    early, final = object_in(outcome.get("ended_early")), object_in(outcome.get("final"))
    step, metric = whole_in(outcome.get("step")), plain_text(final.get("metric") or early.get("metric") or "", 80)
    sentences = []
    if early:
        words = tr(
            "Early stopping at step {step} of {steps}: {n} evaluations in a row found no better {metric}.",
            step=f"{step or 0:,}",
            steps=f"{whole_in(outcome.get('max_steps')) or 0:,}",
            n=whole_in(early.get("evaluations")) or 0,
            metric=metric,
        )
        sentences.append(words)
    if final.get("which") == "best" and final.get("step") != step:
        last = numbers_finite(outcome.get(metric))
        words = tr(
            "final_model has the weights from step {step}, the best by {metric} ({score}; last step: {last}).",
            step=f"{whole_in(final.get('step')) or 0:,}",
            metric=metric,
            score=f"{numbers_finite(final.get('score')) or 0:.4g}",
            last=tr("none") if last is None else f"{last:.4g}",
        )
        sentences.append(words)
    if outcome.get("best_before_training"):
        sentences.append(
            tr(
                "No evaluation was better than the one before step 1: the training did not improve the model on the held-out rows."
            )
        )
    return sentences


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
    cause: str | None
    """One of the causes of core/diagnosis; None when it finished."""
    message: str
    remedy: str | None = None
    evidence: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: Any) -> RunExit | None:
        """None without a code."""
        found = read_fields(cls, document)
        return cls(**{"message": "", "cause": None, **found}) if "code" in found else None


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

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RunState:
        """Reads what it knows and lets newer keys be."""
        return cls(**read_fields(cls, document))


def _attempt(document: Any) -> Attempt | None:
    """None without number and time."""
    found = read_fields(Attempt, document)
    return Attempt(**found) if {"number", "started_s"} <= found.keys() else None


def _of(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: [found for found in map(read, value) if found is not None] if isinstance(value, list) else None


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _of(str),
    "int": _of(int),
    "bool": _of(bool),
    "float": lambda value: float(value) if isinstance(value, int | float) else None,
    "dict[str, Any]": _of(dict),
    "list[str]": _list_of(str),
    "tuple[str, ...]": lambda value: tuple(map(str, value)) if isinstance(value, list) else None,
    "RunStatus": lambda value: value if value in get_args(RunStatus) else None,
    "RunExit": RunExit.from_json,
    "ProcessId": ProcessId.from_json,
    "list[ProcessId]": _list_of(ProcessId.from_json),
    "list[Attempt]": _list_of(_attempt),
}
"""Type of a field, as it is written -> what reads it out of JSON; None for a value of another type."""


def read_fields(kind: type, document: Any) -> dict[str, Any]:
    """The fields of a dataclass that a document has. A value of the wrong type counts as absent."""
    known = document if isinstance(document, dict) else {}
    readers = {field.name: _READERS[str(field.type).removesuffix(" | None")] for field in dataclasses.fields(kind)}
    found = {name: read(known[name]) for name, read in readers.items() if name in known}
    return {name: value for name, value in found.items() if value is not None}


def read_state(folder: RunFolder | Path, now_s: float | None = None, lock: RunLock | None = None) -> RunState:
    """The state of a run; `lost` where core/run/lost.py proves it. `lock`: what the caller itself holds.

    A state.json that cannot be used is `running` while somebody holds the lock (the keeper writes it
    again), `prepared` when nothing was ever trained there, else `lost`. The reason is in its notes.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    observation = Observation.of(run, now_s, lock)
    state = _read(run, observation)
    if why_lost(state, observation) is not None:
        # The keeper may have written its last word between our reading and our looking for it.
        state = _read(run, observation)
    why = why_lost(state, observation)
    return state if why is None else _as_lost(state, run, lost_words(why, state))


def _read(run: RunFolder, observation: Observation) -> RunState:
    document = read_document(run)
    if not isinstance(document, str):
        return RunState.from_json(document)
    state = RunState.from_json(known_without_state(run))
    if observation.lock() == "held":
        # Its heartbeat is now: who holds the lock is there.
        return dataclasses.replace(state, status="running", heartbeat_s=observation.now_s, notes=[document])
    # os.path: below a closed folder Path.exists() raises PermissionError.
    if any(os.path.exists(path) for path in (run.metrics_jsonl, run.train_log)):  # noqa: PTH110
        return _as_lost(state, run, tr("{problem} How the run ended is unknown.", problem=document))
    return dataclasses.replace(state, notes=[document])


def _as_lost(state: RunState, run: RunFolder, message: str) -> RunState:
    remedy = f"trainwiz runs resume {name_for_commands(run.path)}"
    exit_ = RunExit(code=1, cause="unknown", message=message, remedy=remedy)
    return dataclasses.replace(state, status="lost", ended_s=state.heartbeat_s, exit=exit_)


def write_state(folder: RunFolder, state: RunState) -> None:
    write_json_atomic(folder.state_json, state.to_json())
