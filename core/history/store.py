"""The history of this user's measurements: one JSON line each, in the user's data folder."""

from __future__ import annotations

from pathlib import Path

import platformdirs
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.device import keys_of
from trainwiz.core.history.lines import append_line, read_lines
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.json_text import parse_json

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
