"""How fast the wizard answers: from a key to the figure that follows from it, on a real terminal, alone and in a burst."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tools.benchmarks.measure import Result
from tools.benchmarks.terminal import Terminal, cpu_seconds

WIZARD = [str(Path(sys.executable).parent / "trainwiz"), "--profile", "cpu-demo", "--tier", "analytic"]
KEYS = "2345"
ROUNDS = 6
BACKSPACE = b"\x7f"
BETWEEN_KEYS_S = 0.35
"""As long as a person looks at a figure."""
BURST = "1" * 9
BURST_GAP_S = 0.03


@contextmanager
def wizard_in_steps_field(folder: str) -> Iterator[Terminal]:
    """The wizard with the editor of "Training length" open and empty, its plan complete."""
    environment = {**os.environ, "TRAINWIZ_LANG": "en"}
    for kind in ("CONFIG", "CACHE", "DATA"):
        environment[f"XDG_{kind}_HOME"] = folder
    with Terminal(WIZARD, environment, folder) as terminal:
        terminal.seconds_until(b"120 steps", b"launch.sh")
        terminal.type(b"/")
        terminal.seconds_until(b"Find a field")
        terminal.type(b"training length")
        time.sleep(BETWEEN_KEYS_S)
        terminal.type(b"\r")
        terminal.seconds_until(b"120 steps")
        time.sleep(1.0)
        terminal.type(b" ")
        time.sleep(BETWEEN_KEYS_S)
        terminal.type(BACKSPACE)
        time.sleep(1.0)
        yield terminal


def key_seconds(terminal: Terminal) -> list[float]:
    """For each key of a number that grows: seconds from the key until the plan has that many steps."""
    seconds = []
    for _ in range(ROUNDS):
        typed = ""
        for key in KEYS:
            typed += key
            seconds.append(terminal.answer_seconds(key.encode(), f" {int(typed):,} steps".encode()))
            time.sleep(BETWEEN_KEYS_S)
        terminal.type(BACKSPACE * len(KEYS))
        time.sleep(BETWEEN_KEYS_S)
    return seconds


def burst_seconds(terminal: Terminal) -> float:
    """Seconds from the last of many fast keys until the plan has the whole number."""
    for key in BURST[:-1]:
        terminal.type(key.encode())
        time.sleep(BURST_GAP_S)
    return terminal.answer_seconds(BURST[-1].encode(), f"{int(BURST):,}".encode())


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder, wizard_in_steps_field(folder) as terminal:
        seconds = sorted(key_seconds(terminal))
        before = cpu_seconds(terminal.pid)
        last = burst_seconds(terminal)
        spent = cpu_seconds(terminal.pid) - before
    middle, slow = median(seconds) * 1000, seconds[int(len(seconds) * 0.9)] * 1000
    keys = f"{len(seconds)} keys, 9 of 10 within {slow:.0f} ms"
    burst = f"{len(BURST)} keys {BURST_GAP_S * 1000:.0f} ms apart, {spent * 1000:.0f} ms of CPU"
    return [
        Result("key to analytic preview, ms", middle, 50.0, keys),
        Result("last key of a burst to its preview, ms", last * 1000, 100.0, burst),
    ]
