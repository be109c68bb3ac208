"""Files in which a training records its metrics: how they are called, where they lie, and which process writes one."""

from __future__ import annotations

import os
import platform
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.run.processid import identify
from trainwiz.core.telemetry.open_files import OpenFile, is_written, open_files

EVENT_FILE = re.compile(r"events\.out\.tfevents\.(?P<began>\d+)\.(?P<host>.+?)(\.(?P<pid>\d+)\.\d+)?(\.v2)?")
EVENT_WORD = "tfevents"
RECORDS = ("trainer_state.json", "metrics.csv")
WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
GRAPHICS = ("/dev/nvidia", "/dev/dxg", "/dev/kfd")
"""Devices through which CUDA, CUDA in WSL and ROCm compute."""
CLOCK_SLACK_S = 2.0
MOST_ENTRIES = 4_000
DEEPEST = 5
SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__", ".cache", "wandb"})


def records(folder: Path, since_s: float, is_wanted: Callable[[str], bool]) -> list[Path]:
    """The files below `folder` with a wanted name that were written since `since_s` (Unix time), the newest first.

    Looks at MOST_ENTRIES names at most.
    """
    found: list[tuple[float, Path]] = []
    left = MOST_ENTRIES
    waiting = deque([(folder, 0)])
    while waiting and left > 0:
        here, depth = waiting.popleft()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST and entry.name not in SKIPPED:
                            waiting.append((Path(entry.path), depth + 1))
                    elif is_wanted(entry.name) and (written_s := entry.stat().st_mtime) >= since_s:
                        found.append((written_s, Path(entry.path)))
        except OSError:
            continue
    return [path for _, path in sorted(found, key=lambda one: one[0], reverse=True)]


def named_writer(event_file: Path) -> int | None:
    """The process that an event file of this host is named after, dead or alive; None for any other file.

    "events.out.tfevents.<Unix time>.<host>.<pid>.<n>": tensorboard's own writer opens its file for each
    flush only, so that no descriptor tells.
    """
    match = EVENT_FILE.fullmatch(event_file.name)
    return int(match["pid"]) if match and match["pid"] and match["host"] == platform.node() else None


def began(event_file: Path) -> int | None:
    """The process of this machine that began an event file, by the name of the file, where it is still there."""
    match, pid = EVENT_FILE.fullmatch(event_file.name), named_writer(event_file)
    process = identify(pid) if match is not None and pid is not None else None
    if match is None or process is None:
        return None
    # A number that was used again belongs to a process that began after the file.
    return process.pid if process.create_time <= float(match["began"]) + CLOCK_SLACK_S else None


def written_files(pid: int, files: list[OpenFile] | None = None) -> list[Path]:
    """The files that the process has open for writing; [] where it may not be asked."""
    files = (open_files(pid) or []) if files is None else files
    return [file.path for file in files if file.path is not None and is_written(pid, file.descriptor)]


def is_record(path: Path) -> bool:
    return EVENT_WORD in path.name or path.name in RECORDS
