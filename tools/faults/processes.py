"""Processes of one trial, found by a mark in their environment that the product knows nothing of."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TRIAL_VARIABLE = "FAULT_TRIAL"


@dataclass(frozen=True, slots=True)
class Found:
    pid: int
    parent: int
    command: str
    rank: int


def of_trial(mark: str) -> list[Found]:
    """All living processes with the mark; zombies have ended."""
    needle = f"{TRIAL_VARIABLE}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        place = Path(entry.path)
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
            if needle not in variables:
                continue
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if fields[0] not in "ZX":
            rank = next((int(word[5:]) for word in variables if word.startswith(b"RANK=")), 0)
            found.append(Found(int(entry.name), int(fields[1]), command, rank))
    return found


def victim(mark: str, target: str) -> int | None:
    """The pid of "supervisor", "guard", "launcher", "rank0", "rank1" or "worker"; None while there is none."""
    found = of_trial(mark)
    by_pid = {process.pid: process for process in found}
    for process in sorted(found, key=lambda process: process.pid):
        parent = by_pid.get(process.parent)
        if _role(process, parent) == target:
            return process.pid
    return None


def _role(process: Found, parent: Found | None) -> str | None:
    above = parent.command if parent else ""
    if "accelerate.commands.launch" in process.command:
        return "launcher"
    if "trainwiz.core.supervise" in process.command:
        return "guard" if "trainwiz.core.supervise" in above else "supervisor"
    if "trainwiz.core.training" in process.command:
        # A loader worker is a fork of its rank.
        return f"rank{process.rank}" if "accelerate.commands.launch" in above else "worker"
    return None


def wait_until_gone(mark: str, patience_s: float) -> list[str]:
    """What is still there after `patience_s`, as command lines; empty as soon as nothing is."""
    deadline = time.monotonic() + patience_s
    while True:
        left = of_trial(mark)
        if not left or time.monotonic() > deadline:
            return [f"{process.pid}: {process.command.strip()[:160]}" for process in left]
        time.sleep(0.1)


def kill_all(mark: str) -> None:
    """Clear up after a trial that went wrong."""
    for _ in range(50):
        left = of_trial(mark)
        if not left:
            return
        for process in left:
            try:
                os.kill(process.pid, 9)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
