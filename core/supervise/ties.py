"""The ties of a run's processes: Linux process controls, marks, the guard, the lifeline; and the keeper's log."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection

from trainwiz.core.run.folder import RUN_MARK_VARIABLE
from trainwiz.core.run.lost import ProcessId, all_pids, identify
from trainwiz.core.telemetry.processes import environment_of, tree_of

# The two process controls of Linux that keep a tree together. Elsewhere they do nothing.

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# Looked up once: a forked child must not ask the dynamic loader, whose lock another thread of its
# parent may have held at the fork; nobody would ever release it there.
_LIBC_PRCTL = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def _prctl(option: int, argument: int) -> bool:
    return _LIBC_PRCTL is not None and _LIBC_PRCTL(option, argument, 0, 0, 0) == 0


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, not of init."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process as soon as the thread that made it ends, and at once where `parent` (pid) is gone already,
    for then the signal would never come. An exec keeps the setting; a fork does not."""
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def hold_to(parent: int) -> None:
    """End this process by SIGKILL as soon as its parent (pid) ends, however that ends, and whatever this one does.

    Linux does it at once; elsewhere a thread looks once a second.
    """
    die_with_parent(parent)
    if sys.platform != "linux":
        _end_when("parent", lambda: os.getppid() != parent)


def _end_when(name: str, is_over: Callable[[], bool]) -> None:
    """SIGKILL for this process within LOOK_EVERY_S, by a thread of that name."""

    def look() -> None:
        while not is_over():
            time.sleep(LOOK_EVERY_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, name=name, daemon=True).start()


# The processes of a run, found by the mark in their environment that every child inherits.


def marked_processes(mark: str) -> list[int]:
    """The pids of all living processes (of this user) whose environment holds the mark of the run."""
    needle = f"{RUN_MARK_VARIABLE}={mark}".encode()
    return [pid for pid in all_pids() if needle in _variables(pid) and identify(pid) is not None]


def _variables(pid: int) -> list[bytes]:
    """`NAME=value`, as the process was started; none where they cannot be read."""
    if sys.platform != "linux":
        return [f"{name}={value}".encode() for name, value in environment_of(pid).items()]
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def run_processes(mark: str, keeper: int) -> set[int]:
    """All processes of the run but its keeper: the marked ones, and those below the keeper.

    A child that was started with an environment of its own carries no mark; where the keeper adopts
    orphans (`become_subreaper`), it is below it all the same.
    """
    below = {member.pid for member in tree_of(keeper)}
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
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect the children that have ended: pid -> exit code, negative for a signal."""
    ended: dict[int, int] = {}
    while True:
        pid, status = 0, 0
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


# The guard: a tiny process that outlives a killed keeper just long enough to clear up after it.

FAREWELL = b"."
GUARD_PATIENCE_S = 30.0


class Guard:
    """Forked from the keeper; sleeps on a pipe that only the keeper holds open.

    The pipe closes without a farewell when the keeper is killed: the guard then kills every process
    that carries the run's mark, whatever session or parent it has by now, and ends. It is a session
    of its own, so that a signal to the keeper's group does not reach it, and it holds the run's
    lock (inherited by fork) until all is cleared up.
    """

    def __init__(self, mark: str) -> None:
        """Raises OSError where no process can be made."""
        read_end, self._pipe = os.pipe()
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid:
            os.close(read_end)
            return
        try:
            os.close(self._pipe)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_IGN)
            if os.read(read_end, 1) != FAREWELL:
                kill_marked(mark, spare={os.getpid(), keeper}, patience_s=GUARD_PATIENCE_S)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """The guard ends without doing anything; also for one that was killed."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, FAREWELL)
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


# The keeper's own log (supervisor.log is its stderr): never a reason to fail.


def log(text: str) -> None:
    """One line with its time. A full disk loses the line, not the keeper."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()


class SideWork:
    """Work beside a run that must never end it: what goes wrong in it is a line of the log, once."""

    def __init__(self, failing: str) -> None:
        self.problem: str | None = None
        """What went wrong at the last try; None while all is well."""
        self._failing = failing

    def _try(self, step: Callable[[], object]) -> None:
        problem = None
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next try may work
            problem = f"{self._failing}: {type(error).__name__}: {error}"
        before, self.problem = self.problem, problem
        if problem is not None and problem != before:
            log(problem)


# The lifeline of a training process: it never outlives its launcher or its keeper.
#
# **Call contract.** The training entry point calls
#
#     from trainwiz.core.supervise.ties import hold_to_parent
#     hold_to_parent()
#
# as its very first statement, in the main thread, before torch is imported and before any process or
# thread is made. It needs no condition around it: without the environment marks of a keeper (a run
# started by hand with launch.sh) it does nothing and returns False. It imports the standard library only.

KEEPER_VARIABLE = "TRAINWIZ_KEEPER"
"""`<pid>:<start ticks or create time>` of the keeper, set beside RUN_MARK_VARIABLE."""

LOOK_EVERY_S = 1.0

_forked_by: int | None = None
"""The process that forks, where its main thread does."""


def keeper_value(process: ProcessId) -> str:
    """The value of KEEPER_VARIABLE for a keeper."""
    start = process.start_ticks if process.start_ticks is not None else process.create_time
    return f"{process.pid}:{start}"


def hold_to_parent() -> bool:
    """End this process as soon as its launcher or its keeper ends, however they end. True when it holds.

    Linux sends SIGKILL when the launcher dies (PR_SET_PDEATHSIG); a daemon thread looks for the keeper
    once a second, which covers other systems and a launcher that survives its keeper. Processes that
    this one forks later (data loaders) hold to it in the same way.
    """
    keeper = os.environ.get(KEEPER_VARIABLE, "")
    pid, _, start = keeper.partition(":")
    if not pid.isdigit() or not start or RUN_MARK_VARIABLE not in os.environ:
        return False
    # The launcher stands between keeper and training process: a parent that is the keeper or init
    # means that the launcher has died before this line.
    parent = os.getppid()
    if parent in (1, int(pid)) or not _is(keeper):
        os.kill(os.getpid(), signal.SIGKILL)
    die_with_parent(parent)
    _end_when("lifeline", lambda: not _is(keeper))
    os.register_at_fork(before=_before_fork, after_in_child=_in_forked_child)
    return True


def _is(keeper: str) -> bool:
    """Whether the keeper of this KEEPER_VARIABLE lives."""
    found = identify(int(keeper.partition(":")[0]))
    return found is not None and keeper_value(found) == keeper


def _before_fork() -> None:
    # The kernel ties a child to the thread that made it. A child of a thread that ends earlier than
    # the process must not die with that thread.
    global _forked_by
    _forked_by = os.getpid() if threading.current_thread() is threading.main_thread() else None


def _in_forked_child() -> None:
    if _forked_by is not None:
        # Its parent may have been killed before this line: then no signal would ever come.
        die_with_parent(_forked_by)
