"""How the benchmarks measure: whole commands, and the first frame that a terminal shows."""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One claim, its measurement and its limit."""

    claim: str
    measured: float
    limit: float
    detail: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit


def interleaved_medians(repeats: int, *measures: Callable[[], float]) -> list[float]:
    """The median of each measure in seconds. They take turns, so that a busy machine slows all alike."""
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def command_seconds(command: Sequence[str]) -> float:
    """Wall seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def first_frame_seconds(
    command: Sequence[str], marker: bytes, environment: dict[str, str], cwd: str, timeout_s: float = 20.0
) -> float:
    """Seconds from starting `command` on a 120x40 terminal until `marker` is on it."""
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(
            command[0], list(command), {**environment, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        )
    seen = b""
    try:
        while marker not in seen:
            if time.perf_counter() - started > timeout_s:
                raise TimeoutError(f"{command[0]} did not show {marker!r} in {timeout_s} s; it showed {seen[-300:]!r}")
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536)
        return time.perf_counter() - started
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
