"""Finding runs: all of a folder, or the one that a user means."""

from __future__ import annotations

import difflib
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.state import read_state
from trainwiz.core.run.status import RunStatus

TAIL_BYTES = 16_384


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunSummary]:
    """Every run folder directly below `root`, the newest first. A missing root holds no runs."""
    runs = [summarize_run(folder) for folder in run_folders(root)]
    return sorted(runs, key=lambda run: (run.created_s or 0.0, run.name), reverse=True)


def run_folders(root: Path) -> list[RunFolder]:
    """The run folders directly below `root`, in no order."""
    try:
        with os.scandir(root) as entries:
            folders = [RunFolder(Path(entry.path)) for entry in entries if entry.is_dir()]
    except OSError:
        return []
    return [folder for folder in folders if folder.is_run()]


def summarize_run(folder: RunFolder) -> RunSummary:
    state = read_state(folder)
    last = last_metrics(folder.metrics_jsonl)
    step = last.get("step", (state.outcome or {}).get("step"))
    return RunSummary(
        name=folder.path.name,
        path=str(folder.path),
        status=state.status,
        profile=state.profile,
        model=state.model,
        task=state.task,
        step=step if isinstance(step, int) else None,
        max_steps=state.max_steps,
        loss=last.get("loss"),
        created_s=state.created_s,
        started_s=state.started_s,
        ended_s=state.ended_s,
        message=state.exit.message if state.exit else None,
    )


def last_metrics(path: Path) -> dict[str, Any]:
    """The last step and the last finite loss of metrics.jsonl, read from its end: {step?, loss?}."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    found: dict[str, Any] = {}
    for line in reversed(lines):
        try:
            document = parse_json(line)
        except ValueError:
            continue
        if not isinstance(document, dict):
            continue
        if isinstance(document.get("step"), int):
            found.setdefault("step", document["step"])
        loss = document.get("loss")
        if isinstance(loss, int | float) and math.isfinite(loss):
            found["loss"] = float(loss)
            break
    return found


def find_run(text: str, root: Path = DEFAULT_ROOT, *, whole: bool = False) -> RunFolder:
    """The run that `text` means: a name below `root`, a unique beginning or part of one, or a path.

    With `whole` only a whole name or a path will do: for what cannot be taken back.

    Raises UsageError when there is none (with the nearest names) or more than one.
    """
    plain = bool(text) and Path(text).name == text
    if plain and RunFolder(root / text).is_run():
        return RunFolder(root / text)
    if text and RunFolder(Path(text)).is_run():
        return RunFolder(Path(text))
    names = sorted((folder.path.name for folder in run_folders(root)), reverse=True)
    matches = [name for name in names if plain and name.startswith(text)]
    matches = matches or [name for name in names if plain and text in name]
    if len(matches) == 1 and not whole:
        return RunFolder(root / matches[0])
    if len(matches) > 1:
        shown = ", ".join(matches[:5]) + (", ..." if len(matches) > 5 else "")
        message = tr(
            "{text} fits {n} runs: {names}. Give more of the name.", text=repr(text), n=len(matches), names=shown
        )
        raise usage_error("ambiguous_run", text, message)
    if text and Path(text).is_dir() and not plain:
        raise usage_error("not_a_run", text, tr("The folder {path} is not a run: it holds no run.yaml.", path=text))
    near = matches or difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    if not names:
        message = tr(
            "There is no run {text}. There are no runs in {root}/ yet; `trainwiz --profile cpu-demo --yes` makes one.",
            text=repr(text),
            root=root,
        )
    elif near:
        guess = tr(" or ").join(near)
        message = tr("There is no run {text}. Did you mean {guess}?", text=repr(text), guess=guess)
    else:
        message = tr("There is no run {text}. `trainwiz runs list` shows them.", text=repr(text))
    raise usage_error("no_such_run", text, message)
