"""Counting the processes of a run by the mark in their environment, which every child inherits.

Nothing here uses the product's own lists of pids: it asks the kernel. Zombies have ended.
"""

import os
import time
from pathlib import Path

import psutil
from trainwiz.core.run.lost import identify

MARK_VARIABLE = "TRAINWIZ_RUN_MARK"


def marked_pids(mark: str, variable: str = MARK_VARIABLE) -> list[int]:
    """Living processes with a variable in their environment whose value begins so."""
    needle = f"{variable}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and any(one.startswith(needle) for one in variables):
            found.append(int(entry.name))
    return sorted(found)


def wait_until_gone(mark: str, patience_s: float) -> list[int]:
    """The marked processes that are still there after at most `patience_s`; empty as soon as none is.

    A process that is ending gives its environment back before it is gone: who was seen is waited for.
    """
    deadline = time.monotonic() + patience_s
    seen: set[int] = set()
    while True:
        left = marked_pids(mark)
        seen = {pid for pid in seen.union(left) if identify(pid) is not None}
        if not seen or time.monotonic() > deadline:
            return sorted(seen)
        time.sleep(0.05)


def describe(pids: list[int]) -> str:
    """Command lines, for the message of a failed test."""
    found = [one.info for one in psutil.process_iter(["pid", "cmdline"]) if one.pid in pids]
    return "\n".join(f"{one['pid']}: {' '.join(one['cmdline'] or [])}" for one in found)
