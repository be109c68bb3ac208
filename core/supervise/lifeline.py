"""The lifeline of a training process: it never outlives its launcher or its keeper.

**Call contract.** The training entry point calls

    from trainwiz.core.supervise.lifeline import hold_to_parent
    hold_to_parent()

as its very first statement, in the main thread, before torch is imported and before any process or
thread is made. It needs no condition around it: without the environment marks of a keeper (a run
started by hand with launch.sh) it does nothing and returns False. It imports the standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time

from trainwiz.core.run.folder import RUN_MARK_VARIABLE
from trainwiz.core.run.processid import ProcessId, identify
from trainwiz.core.supervise.linux import die_with_parent

KEEPER_VARIABLE = "TRAINWIZ_KEEPER"
"""`<pid>:<start ticks or create time>` of the keeper, set beside RUN_MARK_VARIABLE."""

LOOK_EVERY_S = 1.0

_held = False
_forked_by: int | None = None
"""The process that forks, where its main thread does."""


def keeper_value(process: ProcessId) -> str:
    """The value of KEEPER_VARIABLE for a keeper."""
    start = process.start_ticks if process.start_ticks is not None else process.create_time
    return f"{process.pid}:{start}"


def hold_to_parent() -> bool:
    """End this process as soon as its launcher or its keeper ends, however they end. True when it holds.

    Linux sends SIGKILL when the launcher dies (PR_SET_PDEATHSIG); a daemon thread waits for the end
    of the keeper, which covers other systems and a launcher that survives its keeper. Processes that
    this one forks later (data loaders) hold to it in the same way.
    """
    global _held
    keeper = _keeper()
    if keeper is None or RUN_MARK_VARIABLE not in os.environ:
        return False
    if _held:
        return True
    pid, start = keeper
    # The launcher stands between keeper and training process: a parent that is the keeper or init
    # means that the launcher has died before this line.
    parent = os.getppid()
    if parent in (1, pid) or not _is(pid, start):
        os.kill(os.getpid(), signal.SIGKILL)
    die_with_parent(parent)
    threading.Thread(target=_end_with, args=(pid, start), name="lifeline", daemon=True).start()
    os.register_at_fork(before=_before_fork, after_in_child=_in_forked_child)
    _held = True
    return True


def _keeper() -> tuple[int, str] | None:
    pid, _, start = os.environ.get(KEEPER_VARIABLE, "").partition(":")
    return (int(pid), start) if pid.isdigit() and start else None


def _is(pid: int, start: str) -> bool:
    found = identify(pid)
    return found is not None and keeper_value(found) == f"{pid}:{start}"


def _end_with(pid: int, start: str) -> None:
    """Waits without cost where the kernel can (pidfd), else looks once a second."""
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            descriptor = -1
        if descriptor >= 0 and _is(pid, start):
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll()
    while _is(pid, start):
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _before_fork() -> None:
    # The kernel ties a child to the thread that made it. A child of a thread that ends earlier than
    # the process must not die with that thread.
    global _forked_by
    _forked_by = os.getpid() if threading.current_thread() is threading.main_thread() else None


def _in_forked_child() -> None:
    if _forked_by is not None and sys.platform == "linux":
        # Its parent may have been killed before this line: then no signal would ever come.
        die_with_parent(_forked_by)
