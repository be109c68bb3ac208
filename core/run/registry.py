"""The runs of this user wherever they lie: a line for each start, in the user's data folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
from trainwiz.core.json_text import is_text, parse_json
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.small_file import open_file

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
