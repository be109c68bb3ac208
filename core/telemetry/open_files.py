"""What a process has open: files by path, and where its standard output goes. Linux: /proc/PID/fd, elsewhere psutil."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwiz.core.run.processid import all_pids

Kind = Literal["file", "pipe", "terminal", "null", "socket", "other"]
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One descriptor. `name` is a path for a file, "pipe:[1234]" for a pipe."""

    descriptor: int
    name: str
    kind: Kind

    @property
    def path(self) -> Path | None:
        return Path(self.name) if self.kind == "file" else None


def open_files(pid: int) -> list[OpenFile] | None:
    """None where this user may not look, or the process is gone. Files that were deleted are left out."""
    if sys.platform != "linux":
        return _with_psutil(pid)
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            descriptors = [entry.name for entry in entries]
    except OSError:
        return None
    found = []
    for descriptor in descriptors:
        try:
            name = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - a pipe is no path
        except OSError:
            continue
        if not name.endswith(" (deleted)"):
            found.append(OpenFile(int(descriptor), name, _kind(name)))
    return found


def _kind(name: str) -> Kind:
    if name.startswith("pipe:"):
        return "pipe"
    if name.startswith("socket:"):
        return "socket"
    if name.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return "terminal"
    if name == "/dev/null":
        return "null"
    return "file" if name.startswith("/") and not name.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")) else "other"


def _with_psutil(pid: int) -> list[OpenFile] | None:
    import psutil

    try:
        return [OpenFile(file.fd, file.path, "file") for file in psutil.Process(pid).open_files()]
    except (psutil.Error, OSError):
        return None


def is_written(pid: int, descriptor: int) -> bool:
    """Whether the descriptor was opened for writing; True where that cannot be told."""
    try:
        with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
            for line in file:
                if line.startswith("flags:"):
                    return bool(int(line.split()[1], 8) & WRITING)
    except (OSError, ValueError):
        pass
    return True


def written_through(pipe: str, beside: Iterable[int] | None = None) -> list[Path]:
    """The files into which a reader of `pipe` ("pipe:[1234]") writes: `python train.py | tee train.log`.

    Looks at processes of this user whose standard input is that pipe.
    """
    found: list[Path] = []
    for pid in all_pids() if beside is None else beside:
        try:
            if os.readlink(f"/proc/{pid}/fd/0") != pipe:  # noqa: PTH115 - a pipe is no path
                continue
        except OSError:
            continue
        found += [
            file.path
            for file in open_files(pid) or ()
            if file.path is not None and file.descriptor > 0 and is_written(pid, file.descriptor)
        ]
    return found
