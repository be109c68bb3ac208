"""The processes of a run, found by the mark in their environment that every child inherits."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection

from trainwiz.core.run.folder import RUN_MARK_VARIABLE
from trainwiz.core.run.processid import all_pids, identify
from trainwiz.core.telemetry.processes import tree_of


def marked_processes(mark: str) -> list[int]:
    """The pids of all living processes (of this user) whose environment holds the mark of the run."""
    needle = f"{RUN_MARK_VARIABLE}={mark}"
    if sys.platform == "linux":
        return [pid for pid in all_pids() if _carries(pid, needle)]
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_MARK_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def _carries(pid: int, needle: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False
    return needle.encode() in environment.split(b"\0") and identify(pid) is not None


def run_processes(mark: str, keeper: int) -> set[int]:
    """All processes of the run but its keeper: the marked ones, and those below the keeper.

    A child that was started with an environment of its own carries no mark; where the keeper adopts
    orphans (core.supervise.linux.become_subreaper), it is below it all the same.
    """
    below = {member.pid for member in tree_of(keeper) if not member.zombie}
    return (below | set(marked_processes(mark))) - {keeper}


def kill_marked(mark: str, spare: Collection[int], patience_s: float, keeper: int | None = None) -> list[int]:
    """SIGKILL to every marked process but those in `spare`, again until none is left; with `keeper`, to all below it too.

    Returns the pids that are still there after `patience_s`: processes that hang in the kernel.
    """
    deadline = time.monotonic() + patience_s
    while True:
        found = marked_processes(mark) if keeper is None else sorted(run_processes(mark, keeper))
        left = [pid for pid in found if pid not in spare]
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.05)


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def reap() -> dict[int, int]:
    """Collect the children that have ended: pid -> exit code, negative for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
