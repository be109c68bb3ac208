"""Counting the processes of a run by the mark in their environment, which every child inherits.

Nothing here uses the product's own lists of pids: it asks the kernel. Zombies have ended.
"""

import os
import time
from pathlib import Path

from trainwiz.core.run.lost import identify

MARK_VARIABLE = "TRAINWIZ_RUN_MARK"


def marked_pids(mark: str | None = None) -> list[int]:
    """Living processes with the mark in their environment; None counts every mark, of all runs."""
    needle = f"{MARK_VARIABLE}={mark if mark is not None else ''}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state in "ZX":
            continue
        if any(variable == needle if mark is not None else variable.startswith(needle) for variable in variables):
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
    lines = []
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            command = "(gone)"
        lines.append(f"{pid}: {command}")
    return "\n".join(lines)
