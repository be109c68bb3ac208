"""The history of this user's measurements: JSON lines in the data folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from trainwiz.core.files import append_line, is_file
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, keys_of, measurement_of
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.folder import write_atomic
from trainwiz.core.run.lost import RunLock

MOST_BYTES = 2 * 1024**2
"""Beyond, the older half is dropped."""
LOCK_WAIT_S = 2.0


def history_path() -> Path:
    """`~/.local/share/trainwiz/history.jsonl` on Linux; it need not exist."""
    return Path(platformdirs.user_data_dir("trainwiz")) / "history.jsonl"


def load(machine: Machine) -> tuple[Measurement, ...]:
    """What was measured on this machine, last written first; () for a machine that is only planned.

    The dates would not order them: clocks are set, and offsets change.

    A history that cannot be read is no history: lines that are broken or of a newer kind are left out.
    """
    keys = keys_of(machine)
    if not keys:
        return ()
    found = (measurement_of(document, {}) for document in objects_from_the_end(history_path(), 2 * MOST_BYTES))
    return tuple(one for one in found if one is not None and one.machine in keys)


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Several programs may write; where another holds the lock too long it goes without: a line is written at once, and a
    history is not worth a wait. Raises OSError for a folder that cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = RunLock.take(folder, LOCK_WAIT_S)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def append(measurement: Measurement) -> None:
    """Add one measurement. Raises OSError where it cannot be written."""
    path = history_path()
    with one_writer(path.parent):
        if is_file(path) and path.stat().st_size > MOST_BYTES:
            kept = list(objects_from_the_end(path, MOST_BYTES // 2))
            write_atomic(path, "".join(f"{json.dumps(document)}\n" for document in reversed(kept)))
        append_line(path, json.dumps(measurement.to_json(), ensure_ascii=False, allow_nan=False).encode())
