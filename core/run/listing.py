"""Runs: all of a folder and those elsewhere, the one that a user means, one in detail, several compared, one removed."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import platformdirs
from trainwiz.core.errors import CannotRunError, Finding, os_reason, usage_error
from trainwiz.core.files import append_line, is_folder
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.attempts import AdviceFile, PhaseNow, Recovery, changes_now, read_phase, read_recoveries
from trainwiz.core.run.checkpoints import Checkpoint, list_checkpoints
from trainwiz.core.run.folder import (
    DEFAULT_ROOT,
    OUTCOME_JSON,
    RunFolder,
    name_for_commands,
    read_json,
)
from trainwiz.core.run.lost import RunLock
from trainwiz.core.run.state import RunState, RunStatus, read_state
from trainwiz.core.text import object_in, text_in

# The runs of this user wherever they lie: a line for each start, in the user's data folder.

MOST_BYTES = 64 * 1024
"""No more than this is read, from the end: some hundred starts."""


def registry_path() -> Path:
    """`~/.local/share/trainwiz/runs.jsonl` on Linux; it need not exist."""
    return Path(platformdirs.user_data_dir("trainwiz")) / "runs.jsonl"


def record_run(folder: RunFolder) -> None:
    """Remember that a run was started in `folder`. Raises nothing: a list is not worth a run."""
    path = registry_path()
    # Escaped: the name of a folder may hold bytes that are no text.
    line = json.dumps({"path": str(folder.path.resolve()), "started_s": round(time.time(), 3)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        append_line(path, line.encode())


def recorded_runs() -> list[RunFolder]:
    """The folders that still hold a run, the one started last first; lines that are broken are left out."""
    recorded = (text_in(document.get("path")) for document in objects_from_the_end(registry_path(), MOST_BYTES))
    folders = [RunFolder(Path(text)) for text in dict.fromkeys(recorded) if text]
    return [folder for folder in folders if folder.is_run()]


# Lists of runs: all of a folder, and those that were started elsewhere.

TAIL_BYTES = 16_384


OF_STATE = ("status", "profile", "model", "task", "max_steps", "created_s", "started_s", "ended_s")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One row of `trainwiz runs list`."""

    name: str
    path: str
    status: RunStatus
    profile: str | None
    model: str | None
    task: str | None
    step: int | None
    max_steps: int | None
    loss: float | None
    created_s: float | None
    started_s: float | None
    ended_s: float | None
    message: str | None
    """How it ended, in one sentence."""


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunSummary]:
    """Every run folder directly below `root`, the newest first. A missing or closed root holds no runs."""
    return _newest_first(run_folders(root))


def list_runs_elsewhere(root: Path = DEFAULT_ROOT) -> list[RunSummary]:
    """The runs of this user that do not lie below `root` and are still there, the newest first."""
    here = {folder.path.resolve() for folder in run_folders(root)}
    return _newest_first(folder for folder in recorded_runs() if folder.path.resolve() not in here)


def _newest_first(folders: Iterable[RunFolder]) -> list[RunSummary]:
    runs = map(summarize_run, folders)
    return sorted(runs, key=lambda run: (run.created_s or 0.0, run.name), reverse=True)


def run_folders(root: Path) -> list[RunFolder]:
    """The run folders directly below `root`, in no order."""
    # Neither glob nor is_run() raises for what cannot be looked at, like a closed folder or a link to itself.
    return [folder for folder in map(RunFolder, root.glob("[!.]*")) if folder.is_run()]


def summarize_run(folder: RunFolder, read: RunState | None = None) -> RunSummary:
    """`read`: its state, where the caller has it."""
    state = read or read_state(folder)
    last = last_metrics(folder.metrics_jsonl)
    step = last.get("step", (state.outcome or {}).get("step"))
    return RunSummary(
        name=folder.path.name,
        path=str(folder.path),
        step=step if isinstance(step, int) else None,
        loss=last.get("loss"),
        message=state.exit.message if state.exit else None,
        **{name: getattr(state, name) for name in OF_STATE},
    )


def last_metrics(path: Path) -> dict[str, Any]:
    """The last step and the last finite loss of metrics.jsonl, read from its end: {step?, loss?}."""
    found: dict[str, Any] = {}
    for document in objects_from_the_end(path, TAIL_BYTES):
        if isinstance(document.get("step"), int):
            found.setdefault("step", document["step"])
        loss = document.get("loss")
        if isinstance(loss, int | float) and math.isfinite(loss):
            found["loss"] = float(loss)
            break
    return found


# find_run: the one run that a user means.

MOST_SHOWN, LONGEST_SHOWN = 5, 120


def find_run(text: str, root: Path = DEFAULT_ROOT, *, whole: bool = False) -> RunFolder:
    """The run that `text` means: a name below `root`, a path, a unique beginning or part of a name, or the
    name of a run that was started elsewhere.

    With `whole` only a whole name or a path will do: for what cannot be taken back.

    Raises UsageError when there is none (with the nearest names) or more than one.
    """
    # "." and ".." are folders and no names.
    is_name = bool(text) and Path(text).name == text and text != ".."
    if is_name and RunFolder(root / text).is_run():
        return RunFolder(root / text)
    if text and RunFolder(Path(text)).is_run():
        path = Path(text)
        return RunFolder(path if path.name not in ("", "..") else path.resolve())
    here = sorted(run_folders(root), key=lambda folder: folder.path.name, reverse=True)
    elsewhere = recorded_runs() if is_name else []
    ways = (str.__eq__,) if whole else (str.__eq__, str.startswith, str.__contains__)
    found: list[RunFolder] = []
    for fits in ways if is_name else ():
        for place in (here, elsewhere):
            found = found or [folder for folder in place if fits(folder.path.name, text)]
    if len(found) == 1:
        return found[0]
    # As Python writes it, so that what cannot be seen is seen.
    shown = repr(text[:LONGEST_SHOWN])
    if found:
        paths = ", ".join(str(folder.path) for folder in found[:MOST_SHOWN])
        message = tr("{text} matches {n} runs: {names}. Type more of the name.", text=shown, n=len(found), names=paths)
        raise usage_error("ambiguous_run", text, message)
    _refuse_folder(text, root)
    names = [folder.path.name for folder in (*here, *elsewhere)]
    near = [name for name in names if text and text in name] or difflib.get_close_matches(text, names, cutoff=0.4)
    message = tr("Run {text} not found. `trainwiz runs list` shows all runs.", text=shown)
    if near:
        message = tr("Run {text} not found. Did you mean {guess}?", text=shown, guess=tr(" or ").join(near[:3]))
    raise usage_error("no_such_run", text, message)


def _refuse_folder(text: str, root: Path) -> None:
    """Raises UsageError for a folder that holds no run, and where a closed one hides whether there is one."""
    for path in (root, root / text, Path(text)):
        if is_folder(path) and not os.access(path, os.R_OK | os.X_OK):
            message = tr("Cannot read {path}: {reason}.", path=path, reason=tr("Permission denied"))
            raise usage_error("not_readable", str(path), message)
    if text and is_folder(Path(text)):
        message = tr("The folder {path} is not a run: it contains no run.yaml.", path=text)
        raise usage_error("not_a_run", text, message)


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
    checkpoints: list[Checkpoint]
    set_aside: list[SetAside]
    phase: PhaseNow | None
    """What the training does now; None for a run that is not active."""
    advice: list[Mapping[str, Any]]
    """What watchers recorded and did not take back, as lines of advice.jsonl."""
    recoveries: list[Recovery]
    """The starts that trainwiz made by itself."""
    batch: Mapping[str, Any]
    """That of plan.json: what the changes of an attempt are compared with."""

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz runs show --json`."""
        document = asdict(self)
        summary, _ = document.pop("summary"), document.pop("batch")
        checkpoints = [{**found, "path": found["path"].name} for found in document["checkpoints"]]
        return {**summary, **document, "state": self.state.to_json(), "checkpoints": checkpoints}


def describe_run(folder: RunFolder) -> RunDescription:
    """Reads only; what cannot be read is absent."""
    state = read_state(folder)
    return RunDescription(
        summary=summarize_run(folder, state),
        state=state,
        checkpoints=list_checkpoints(folder),
        set_aside=_set_aside(folder),
        phase=read_phase(folder) if state.is_active else None,
        advice=AdviceFile.of(folder).read(),
        recoveries=read_recoveries(folder),
        batch=object_in((read_json(folder.plan_json) or {}).get("batch")),
    )


def _set_aside(folder: RunFolder) -> list[SetAside]:
    """The checkpoints that were renamed, by step."""
    matches = (SET_ASIDE_NAME.fullmatch(path.name) for path in folder.path.glob("*-checkpoint-*"))
    found = [SetAside(match[0], match[1], int(match[2])) for match in matches if match]
    return sorted(found, key=lambda aside: (aside.step, aside.name))


# Comparing runs: where their settings differ, and what came out.

LEFT_OUT = ("origins", "name", "schema_version")

RESULTS: tuple[tuple[str, str], ...] = (
    ("status", mark("status")),
    ("step", mark("step")),
    ("max_steps", mark("max steps")),
    ("first_loss", mark("first loss")),
    ("last_loss", mark("last loss")),
    ("eval_loss", mark("evaluation loss")),
    ("eval_perplexity", mark("perplexity")),
    ("eval_f1", "F1"),
    ("eval_bleu", "BLEU"),
    ("duration_s", mark("seconds")),
    ("engine", mark("engine")),
    ("attempts", mark("attempts")),
)


def compare_runs(folders: list[RunFolder]) -> dict[str, Any]:
    """{runs: [names], settings: {key path: [value of each]} where they differ, planned: {key path: [value of each]}
    where recovery changed one, results: {name: [value of each]}}.

    The settings are those of the newest attempt. Raises UsageError for fewer than two runs, and for a run.yaml that
    cannot be read.
    """
    if len(folders) < 2:
        raise usage_error("too_few_runs", "runs", tr("Specify two or more runs to compare."))
    planned = [_settings(folder) for folder in folders]
    changes = [changes_now(folder) for folder in folders]
    # Key paths as they stand: a run.yaml of another version, which no RunConfig takes, can be compared too.
    settings = _side_by_side([one | changed for one, changed in zip(planned, changes, strict=True)])
    return {
        "runs": [folder.path.name for folder in folders],
        "settings": {key: values for key, values in settings.items() if any(value != values[0] for value in values)},
        "planned": {key: [one.get(key) for one in planned] for key in _side_by_side(changes)},
        "results": _side_by_side([_results(folder) for folder in folders]),
    }


def _side_by_side(documents: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Every key -> its value in each; None where one has none."""
    return {key: [one.get(key) for one in documents] for key in dict.fromkeys(chain(*documents))}


def _settings(folder: RunFolder) -> dict[str, Any]:
    # Lists and the keeper need no YAML.
    from trainwiz.core.config.yaml_text import read_yaml

    values = read_yaml(folder.run_yaml).values
    return _flat({key: value for key, value in values.items() if key not in LEFT_OUT}, "")


def _flat(node: Any, path: str) -> dict[str, Any]:
    if isinstance(node, list) and any(isinstance(item, dict) for item in node):
        node = dict(enumerate(node))
    if not isinstance(node, dict) or not node:
        return {path: node}
    found: dict[str, Any] = {}
    for key, value in node.items():
        found |= _flat(value, f"{path}.{key}".lstrip("."))
    return found


def _results(folder: RunFolder) -> dict[str, Any]:
    state = read_state(folder)
    summary = summarize_run(folder, state)
    outcome = state.outcome or read_json(folder.file(OUTCOME_JSON)) or {}
    lasted_s = sum((attempt.ended_s or attempt.started_s) - attempt.started_s for attempt in state.attempts)
    known = {
        **outcome,
        **asdict(summary),
        "last_loss": outcome.get("last_loss", summary.loss),
        "attempts": len(state.attempts),
        "engine": state.engine.get("actual"),
        "duration_s": None if state.started_s is None or state.ended_s is None else round(lasted_s, 1),
    }
    return {name: known.get(name) for name, _ in RESULTS}


# Removing a run: the only place of the product that deletes what it did not just make.

LOCK_PATIENCE_S = 1.0
"""Readers hold the lock for a moment."""


def check_removable(folder: RunFolder, lock: RunLock | None = None) -> None:
    """Raises UsageError when the folder is no run, is active, or holds the place that the user works in.

    `lock`: what the caller itself holds.
    """
    path = folder.path
    if path.is_symlink():
        message = tr(
            "{path} is a link and is not removed. Remove the run it points to with: trainwiz runs remove {typed}",
            path=path,
            typed=shlex.quote(str(path.resolve())),
        )
        raise usage_error("not_a_run", str(path), message)
    if not (folder.run_yaml.is_file() and folder.state_json.is_file()):
        message = tr("{path} is not removed: it is not a trainwiz run folder.", path=path)
        raise usage_error("not_a_run", str(path), message)
    if Path.cwd().is_relative_to(path.resolve()):
        message = tr("{path} is not removed: {what} is inside it.", path=path, what=tr("the current folder"))
        raise usage_error("not_removable", str(path), message)
    state = read_state(folder, lock=lock)
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
            message = tr("{name} is being started or cleaned up; try again.", name=path.name)
            raise usage_error("run_is_active", str(path), message)
        try:
            # It may have been started while we waited.
            check_removable(folder, lock)
            _delete(path)
        finally:
            lock.release()
    except OSError as error:
        message = tr("{path} could not be removed completely: {reason}.", path=path, reason=os_reason(error))
        raise CannotRunError(Finding("not_removable", "error", str(path), message)) from None


def _delete(path: Path) -> None:
    """Out of sight in one step: half a run is never found, and a start at this moment finds none."""
    hidden = path.rename(path.with_name(f".{path.name}.removing"))
    try:
        shutil.rmtree(hidden)
    except OSError:
        with contextlib.suppress(OSError):
            hidden.rename(path)
        raise
