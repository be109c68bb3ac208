"""One run with all that its folder says; comparing and removing runs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.errors import CannotRunError, Finding, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.run.attempts import PhaseNow, Recovery, changes_now, read_phase, read_recoveries
from trainwiz.core.run.checkpoints import Checkpoint, list_checkpoints
from trainwiz.core.run.folder import LAUNCH_SH, PLAN_JSON, RunFolder, name_for_commands, read_json
from trainwiz.core.run.listing import RunSummary, summarize_run
from trainwiz.core.run.lost import RunLock
from trainwiz.core.run.state import RunState, read_state

# RunDescription: one run with all that its folder says of it, for `trainwiz runs show`.

SET_ASIDE_NAME = re.compile(r"(broken|later)-checkpoint-(\d+)(-\d+)?")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A checkpoint that was renamed out of the way; it is not deleted by anybody but the user."""

    name: str
    why: str
    """broken: it was not complete. later: the training went on from an earlier one."""
    step: int


@dataclass(frozen=True, slots=True)
class RunDescription:
    summary: RunSummary
    state: RunState
    checkpoints: tuple[Checkpoint, ...]
    set_aside: tuple[SetAside, ...]
    phase: PhaseNow | None
    """What the training does now; None for a run that is not active."""
    advice: tuple[Mapping[str, Any], ...]
    """What watchers recorded and did not take back, as lines of advice.jsonl."""
    recoveries: tuple[Recovery, ...]
    """The starts that trainwiz made by itself."""
    batch: Mapping[str, Any]
    """That of plan.json: what the changes of an attempt are compared with."""

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz runs show --json`."""
        return {
            **self.summary.to_json(),
            "state": self.state.to_json(),
            "checkpoints": [{**asdict(found), "path": found.path.name} for found in self.checkpoints],
            "set_aside": [asdict(found) for found in self.set_aside],
            "phase": asdict(self.phase) if self.phase else None,
            "advice": list(self.advice),
            "recoveries": [asdict(recovery) for recovery in self.recoveries],
        }


def describe_run(folder: RunFolder) -> RunDescription:
    """Reads only; what cannot be read is absent."""
    state = read_state(folder)
    batch = (read_json(folder.plan_json) or {}).get("batch")
    return RunDescription(
        summary=summarize_run(folder),
        state=state,
        checkpoints=tuple(list_checkpoints(folder)),
        set_aside=tuple(list_set_aside(folder)),
        phase=read_phase(folder) if state.is_active else None,
        advice=tuple(_standing_advice(folder)),
        recoveries=tuple(read_recoveries(folder)),
        batch=batch if isinstance(batch, dict) else {},
    )


def list_set_aside(folder: RunFolder) -> list[SetAside]:
    """The checkpoints that were renamed, by step."""
    try:
        names = sorted(path.name for path in folder.path.iterdir())
    except OSError:
        return []
    matches = [match for match in map(SET_ASIDE_NAME.fullmatch, names) if match]
    found = [SetAside(match[0], match[1], int(match[2])) for match in matches]
    return sorted(found, key=lambda one: (one.step, one.name))


def _standing_advice(folder: RunFolder) -> list[Mapping[str, Any]]:
    # Readers of growing files load what `runs list` and the keeper do not need.
    from trainwiz.core.lines import JsonLinesTail
    from trainwiz.core.run.advice import ADVICE_JSONL, AdviceFile

    return AdviceFile(JsonLinesTail(folder.file(ADVICE_JSONL))).read()


# Comparing runs: where their settings differ, and what came out.

LEFT_OUT = ("origins", "name", "schema_version")
ABSENT = None

RESULTS: tuple[tuple[str, str], ...] = (
    ("status", mark("status")),
    ("step", mark("step")),
    ("max_steps", mark("of steps")),
    ("first_loss", mark("first loss")),
    ("last_loss", mark("last loss")),
    ("eval_loss", mark("evaluation loss")),
    ("eval_perplexity", mark("perplexity")),
    ("eval_bleu", "BLEU"),
    ("duration_s", mark("seconds")),
    ("engine", mark("engine")),
    ("attempts", mark("attempts")),
)


def compare_runs(folders: list[RunFolder]) -> dict[str, Any]:
    """{runs: [names], settings: {key path: [value of each]} where they differ, planned: {key path: [value of each]}
    where recovery changed one, results: {name: [value of each]}}.

    The settings are those of the newest attempt, as core.config.effective has them. Raises UsageError for fewer than two runs and for a run.yaml that cannot be read.
    """
    if len(folders) < 2:
        raise usage_error("too_few_runs", "runs", tr("Name two runs or more to compare."))
    planned = [_settings(folder) for folder in folders]
    changes = [changes_now(folder) for folder in folders]
    # Key paths as they stand: a run.yaml of another version, which no RunConfig takes, can be compared too.
    settings = [one | changed for one, changed in zip(planned, changes, strict=True)]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    rows = {key: [one.get(key, ABSENT) for one in settings] for key in keys}
    results = [_results(folder) for folder in folders]
    return {
        "runs": [folder.path.name for folder in folders],
        "settings": {key: values for key, values in rows.items() if any(value != values[0] for value in values[1:])},
        "planned": {key: [one.get(key, ABSENT) for one in planned] for key in dict.fromkeys(chain(*changes))},
        "results": {key: [one[key] for one in results] for key, _ in RESULTS},
    }


def _settings(folder: RunFolder) -> dict[str, Any]:
    try:
        document = load_yaml(read_small(folder.run_yaml).decode())
    except OSError as error:
        message = tr("{path} cannot be read: {reason}.", path=folder.run_yaml, reason=os_reason(error))
        raise usage_error("broken_run_yaml", str(folder.run_yaml), message) from None
    except (UnicodeDecodeError, yaml.YAMLError):
        document = None
    if not isinstance(document, dict):
        message = tr("{path} cannot be read as YAML.", path=folder.run_yaml)
        raise usage_error("broken_run_yaml", str(folder.run_yaml), message)
    return _flat({key: value for key, value in document.items() if key not in LEFT_OUT}, "")


def _flat(node: Any, path: str) -> dict[str, Any]:
    children: list[tuple[str, Any]]
    if isinstance(node, dict) and node:
        children = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        children = [(str(number), value) for number, value in enumerate(node)]
    else:
        return {path: node}
    found: dict[str, Any] = {}
    for key, value in children:
        found |= _flat(value, f"{path}.{key}" if path else key)
    return found


def _results(folder: RunFolder) -> dict[str, Any]:
    state, summary = read_state(folder), summarize_run(folder)
    outcome = state.outcome or read_json(folder.file("outcome.json")) or {}
    duration_s = None
    if state.started_s is not None and state.ended_s is not None:
        duration_s = round(sum((a.ended_s or a.started_s) - a.started_s for a in state.attempts), 1)
    return {
        "status": state.status,
        "step": summary.step,
        "max_steps": summary.max_steps,
        "first_loss": outcome.get("first_loss"),
        "last_loss": outcome.get("last_loss", summary.loss),
        "eval_loss": outcome.get("eval_loss"),
        "eval_perplexity": outcome.get("eval_perplexity"),
        "eval_bleu": outcome.get("eval_bleu"),
        "duration_s": duration_s,
        "engine": state.engine.get("actual"),
        "attempts": len(state.attempts),
    }


# Removing a run: the only place of the product that deletes what it did not just make.

LOCK_PATIENCE_S = 1.0
"""Readers hold the lock for a moment."""


def check_removable(folder: RunFolder, lock: RunLock | None = None) -> None:
    """Raises UsageError when the folder is no run, is active, or holds the place that the user works in.

    `lock`: what the caller itself holds.
    """
    path = folder.path
    signs = [folder.run_yaml, folder.state_json, folder.file(PLAN_JSON), folder.file(LAUNCH_SH)]
    if path.is_symlink():
        message = tr(
            "{path} is a link and is not removed. The run that it leads to goes with: trainwiz runs remove {typed}",
            path=path,
            typed=shlex.quote(str(path.resolve())),
        )
        raise usage_error("not_a_run", str(path), message)
    if not all(sign.is_file() for sign in signs[:2]) or not any(s.is_file() for s in signs[2:]):
        raise usage_error(
            "not_a_run", str(path), tr("{path} is not removed: it is not a run folder of trainwiz.", path=path)
        )
    real = path.resolve()
    for place, what in ((Path.cwd(), tr("the folder you work in")), (Path.home(), tr("your home folder"))):
        if place.resolve().is_relative_to(real):
            message = tr("{path} is not removed: {what} is inside it.", path=path, what=what)
            raise usage_error("not_removable", str(path), message)
    state = read_state(folder, lock=lock)
    if state.status == "stopping":
        message = tr("{name} is being stopped; remove it when it has ended.", name=path.name)
        raise usage_error("run_is_active", str(path), message)
    if state.is_active:
        message = tr(
            "{name} is {status}; stop it first: trainwiz runs stop {typed}",
            name=path.name,
            status=tr(state.status),
            typed=name_for_commands(path),
        )
        raise usage_error("run_is_active", str(path), message)


def remove_run(folder: RunFolder) -> None:
    """Delete the folder of a run with all that is in it; follows no link out of it.

    Raises UsageError as check_removable does, and when it is being started at this moment;
    CannotRunError when it cannot be deleted whole.
    """
    check_removable(folder)
    path = folder.path
    try:
        lock = RunLock.take(path, wait_s=LOCK_PATIENCE_S)
        if lock is None:
            message = tr("{name} is being started or cleared up; try again.", name=path.name)
            raise usage_error("run_is_active", str(path), message)
        try:
            # It may have been started while we waited.
            check_removable(folder, lock)
            _delete(path)
        finally:
            lock.release()
    except OSError as error:
        message = tr("{path} could not be removed whole: {reason}.", path=path, reason=os_reason(error))
        raise CannotRunError(Finding("not_removable", "error", str(path), message)) from None


def _delete(path: Path) -> None:
    """Out of sight in one step: half a run is never found, and a start at this moment finds none."""
    hidden = path.with_name(f".{path.name}.removing")
    try:
        path.rename(hidden)
    except OSError:
        # A mount point, a name that gets too long, a closed parent: then where it stands.
        shutil.rmtree(path)
        return
    try:
        shutil.rmtree(hidden)
    except OSError:
        with contextlib.suppress(OSError):
            hidden.rename(path)
        raise


def size_bytes(path: Path) -> int:
    """Bytes that the files below `path` take on the disk; links are not followed."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - half the time
            except OSError:
                continue
    return total
