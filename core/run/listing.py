"""Lists of runs, wherever they lie, and the one that a user means."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.run.folder import DEFAULT_ROOT, RunFolder
from trainwiz.core.run.state import RunStatus, read_state
from trainwiz.core.text import is_text, parse_json

# The runs of this user wherever they lie: a line for each start, in the user's data folder.

REGISTRY = "runs.jsonl"
MOST_LINES = 400
"""Beyond, what is gone and what is older than the newest KEPT_RUNS is dropped."""
KEPT_RUNS = 200
MOST_BYTES = 1024**2
"""No more than this is read, from the end."""


def registry_path() -> Path:
    """`~/.local/share/trainwiz/runs.jsonl` on Linux; it need not exist."""
    return Path(platformdirs.user_data_dir("trainwiz")) / REGISTRY


def record_run(folder: RunFolder) -> None:
    """Remember that a run was started in `folder`. Raises nothing: a list is not worth a run."""
    path = registry_path()
    line = _line({"path": str(folder.path.resolve()), "started_s": round(time.time(), 3)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            _lock(file.fileno())
            # A writer that was killed may have left half a line.
            file.write(b"\n" * (not _ends_whole(path)) + line.encode() + b"\n")
        _shorten(path)


def _line(document: Mapping[str, Any]) -> str:
    line = json.dumps(document, ensure_ascii=False)
    return line if is_text(line) else json.dumps(document)


def recorded_runs() -> list[RunFolder]:
    """The folders that still hold a run, the one started last first."""
    newest_first = dict.fromkeys(reversed(_paths(registry_path())))
    return [folder for folder in map(RunFolder, newest_first) if folder.is_run()]


def _paths(path: Path) -> list[Path]:
    """In the order of the file; lines that are broken are left out."""
    try:
        with open_file(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            document = parse_json(line)
        except ValueError:
            continue
        recorded = document.get("path") if isinstance(document, dict) else None
        if isinstance(recorded, str) and recorded.startswith("/") and "\0" not in recorded:
            found.append(Path(recorded))
    return found


def _shorten(path: Path) -> None:
    """Once in a while write the list anew; a start that is recorded at that very moment may be missed."""
    with open_file(path) as file:
        lines = sum(1 for _ in file)
    if lines <= MOST_LINES:
        return
    kept = list(reversed([folder.path for folder in recorded_runs()[:KEPT_RUNS]]))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        text = "".join(_line({"path": str(one)}) + "\n" for one in kept)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _ends_whole(path: Path) -> bool:
    with open_file(path) as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lock(descriptor: int) -> None:
    """As long as the file is open; without it where the file system knows no locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Lists of runs: all of a folder, and those that were started elsewhere.

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


# find_run: the one run that a user means.

MOST_SHOWN = 5
LONGEST_SHOWN = 120


def find_run(text: str, root: Path = DEFAULT_ROOT, *, whole: bool = False) -> RunFolder:
    """The run that `text` means: a name below `root`, a path, a unique beginning or part of a name, or the
    name of a run that was started elsewhere.

    With `whole` only a whole name or a path will do: for what cannot be taken back.

    Raises UsageError when there is none (with the nearest names) or more than one.
    """
    if "\0" in text:
        raise usage_error("no_such_run", "RUN", tr("The name of a run holds no zero byte."))
    # "." and ".." are folders and no names.
    is_name = bool(text) and Path(text).name == text and text != ".."
    if is_name and RunFolder(root / text).is_run():
        return RunFolder(root / text)
    if text and RunFolder(Path(text)).is_run():
        path = Path(text)
        return RunFolder(path if path.name not in ("", "..") else path.resolve())
    here = sorted(run_folders(root), key=lambda folder: folder.path.name, reverse=True)
    elsewhere = recorded_runs() if is_name else []
    named = [folder for folder in elsewhere if folder.path.name == text]
    for found in (named, _fitting(text, here), _fitting(text, elsewhere)) if is_name else ():
        if len(found) == 1 and (found is named or not whole):
            return found[0]
        if len(found) > 1:
            raise _ambiguous(text, found)
    raise _none_such(text, root, is_name, [*here, *elsewhere])


def _quoted(text: str) -> str:
    """As Python writes it, so that what cannot be seen is seen; of a very long one its beginning."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}..."


def _fitting(text: str, folders: list[RunFolder]) -> list[RunFolder]:
    """Those whose name begins with the text; where none does, those that hold it."""
    begin = [folder for folder in folders if folder.path.name.startswith(text)]
    return begin or [folder for folder in folders if text in folder.path.name]


def _ambiguous(text: str, found: list[RunFolder]) -> UsageError:
    names = [folder.path.name for folder in found]
    if len(set(names)) < len(names):
        names = [str(folder.path) for folder in found]
    shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
    message = tr("{text} fits {n} runs: {names}. Give more of the name.", text=_quoted(text), n=len(names), names=shown)
    return usage_error("ambiguous_run", text, message)


def _none_such(text: str, root: Path, is_name: bool, folders: list[RunFolder]) -> UsageError:
    for path in (root / text, root) if is_name else (Path(text),):
        # Path.is_dir() raises below a closed folder.
        if text and os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):  # noqa: PTH112
            message = tr("{path} cannot be read: {reason}.", path=path, reason=tr("Permission denied"))
            return usage_error("not_readable", str(path), message)
    if text and os.path.isdir(text) and not is_name:  # noqa: PTH112
        return usage_error("not_a_run", text, tr("The folder {path} is not a run: it holds no run.yaml.", path=text))
    names = [folder.path.name for folder in folders]
    near = [folder.path.name for folder in _fitting(text, folders)][:3] if is_name else []
    near = near or difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    if not names:
        message = tr(
            "There is no run {text}. There are no runs in {root}/ yet; `trainwiz --profile cpu-demo --yes` makes one.",
            text=_quoted(text),
            root=root,
        )
    elif near:
        guess = tr(" or ").join(near)
        message = tr("There is no run {text}. Did you mean {guess}?", text=_quoted(text), guess=guess)
    else:
        message = tr("There is no run {text}. `trainwiz runs list` shows them.", text=_quoted(text))
    return usage_error("no_such_run", text, message)
