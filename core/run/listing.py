"""Lists of runs: all of a folder, and those that were started elsewhere."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.registry import recorded_runs
from trainwiz.core.run.state import read_state
from trainwiz.core.run.status import RunStatus
from trainwiz.core.small_file import open_file

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
    """Every run folder directly below `root`, the newest first. A missing or closed root holds no runs."""
    runs = [summarize_run(folder) for folder in run_folders(root)]
    return sorted(runs, key=lambda run: (run.created_s or 0.0, run.name), reverse=True)


def list_runs_elsewhere(root: Path = DEFAULT_ROOT) -> list[RunSummary]:
    """The runs of this user that do not lie below `root` and are still there, the newest first."""
    here = {folder.path.resolve() for folder in run_folders(root)}
    runs = [summarize_run(folder) for folder in recorded_runs() if folder.path.resolve() not in here]
    return sorted(runs, key=lambda run: (run.created_s or 0.0, run.name), reverse=True)


def run_folders(root: Path) -> list[RunFolder]:
    """The run folders directly below `root`, in no order."""
    try:
        with os.scandir(root) as entries:
            paths = [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []
    # is_run() is false for what cannot be looked at, like a link to itself.
    return [folder for folder in map(RunFolder, paths) if folder.is_run()]


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
        with open_file(path) as file:
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
