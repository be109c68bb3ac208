"""files.json of a checkpoint: what was in each of its files when the save was over.

    {"format": "trainwiz.files/1", "files": {"model.safetensors": {"bytes": 30123456, "sample": "6f1c..."}}}

It is written last, after all other files have reached the disk. A checkpoint that has one is compared
with it: a file that is missing, shorter, filled with zeros by a loss of power, or otherwise another
one than was saved shows. What does not show: a change of a file above 1 MiB that keeps its size and
lies between the blocks that `sampled_digest` reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.run.folder import read_json, write_json_atomic
from trainwiz.core.run.sampled import sampled_digest

FILES_JSON = "files.json"
FORMAT = "trainwiz.files/1"


def seal(checkpoint: Path) -> int:
    """Bring every file of a finished save to the disk, then write files.json; the bytes of all files.

    Raises OSError. Without it the folder is judged by its headers alone.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in _files(checkpoint):
        _to_disk(path)
        name = path.relative_to(checkpoint).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sample": sampled_digest(path)}
    write_json_atomic(checkpoint / FILES_JSON, {"format": FORMAT, "files": files})
    _to_disk(checkpoint / FILES_JSON)
    for folder in (*{(checkpoint / name).parent for name in files}, checkpoint, checkpoint.parent):
        _to_disk(folder)
    return sum(entry["bytes"] for entry in files.values())


def changed_file(checkpoint: Path) -> str | None:
    """One sentence about the first file that is not as it was saved; None where all are, or nothing was noted.

    Raises OSError.
    """
    files = (read_json(checkpoint / FILES_JSON) or {}).get("files")
    if not isinstance(files, dict):
        return None
    for name, saved in files.items():
        path, size = checkpoint / name, saved.get("bytes") if isinstance(saved, dict) else None
        if not path.is_file():
            return tr("{name} is missing", name=name)
        now = path.stat().st_size
        if now != size:
            return tr("{name} has {size} bytes instead of {expected}", name=name, size=f"{now:,}", expected=size)
        if sampled_digest(path) != saved.get("sample"):
            return tr("{name} does not hold what was saved", name=name)
    return None


def size_on_disk(checkpoint: Path) -> int:
    """Bytes of all its files."""
    return sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())


def _files(checkpoint: Path) -> Iterator[Path]:
    yield from (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != FILES_JSON)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
