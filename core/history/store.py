"""The history of this user's measurements: JSON lines in the data folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import platformdirs
from trainwiz.core.files import open_file
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, keys_of
from trainwiz.core.text import parse_json

# Files of JSON lines in the user's data folder that several programs add to at once.

MOST_LINES = 2_000
MOST_BYTES = 4 * 1024**2
"""Beyond either the older half is dropped."""
LONGEST_LINE = 64 * 1024
LOCK_WAIT_S = 2.0


def read_lines(path: Path) -> list[str]:
    """Oldest first; none where the file cannot be read."""
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * MOST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line and len(line) <= LONGEST_LINE]


def append_line(path: Path, document: Mapping[str, Any]) -> None:
    """Add one line. Raises OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(document, ensure_ascii=False, allow_nan=False)
    with _locked(path.with_suffix(".lock")):
        _shorten(path)
        with path.open("ab") as file:
            # A writer that was killed may have left half a line.
            gap = b"\n" if file.tell() and not _ends_with_newline(path) else b""
            file.write(gap + line.encode() + b"\n")


def _shorten(path: Path) -> None:
    lines = read_lines(path)
    try:
        too_big = path.stat().st_size > MOST_BYTES
    except OSError:
        return
    if len(lines) < MOST_LINES and not too_big:
        return
    kept = lines[-MOST_LINES // 2 :] if not too_big else lines[len(lines) // 2 :]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _ends_with_newline(path: Path) -> bool:
    with open_file(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """An exclusive lock; where the file system knows none, or another holds it too long, it goes without:
    a line is written at once, and a history is not worth a wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError) or time.monotonic() >= deadline:
                    break
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


# The history of this user's measurements: one JSON line each, in the user's data folder.

HISTORY = "history.jsonl"


def history_path() -> Path:
    """`~/.local/share/trainwiz/history.jsonl` on Linux; it need not exist."""
    return Path(platformdirs.user_data_dir("trainwiz")) / HISTORY


def load(machine: Machine) -> tuple[Measurement, ...]:
    """What was measured on this machine, last written first; () for a machine that is only planned.

    The dates would not order them: clocks are set, and offsets change.

    A history that cannot be read is no history: lines that are broken or of a newer kind are left out.
    """
    keys = keys_of(machine)
    if not keys:
        return ()
    found = (_measurement(line) for line in read_lines(history_path()))
    here = [one for one in found if one is not None and one.machine in keys]
    return tuple(reversed(here))


def append(measurement: Measurement) -> None:
    """Add one measurement; several programs may do so at once. Raises OSError where it cannot be written."""
    append_line(history_path(), measurement.to_json())


def _measurement(line: str) -> Measurement | None:
    try:
        document = parse_json(line)
        measurement = Measurement.from_json(document) if isinstance(document, dict) else None
    except (ValueError, TypeError, KeyError):
        return None
    return measurement if measurement is not None and measurement.is_sound() else None
