"""One keeper at a time, one process beyond doubt, and the written rule for `lost`."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.files import is_file
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import moment_words

if TYPE_CHECKING:
    from trainwiz.core.run.state import RunState


# ProcessId: one process beyond doubt, though its number may be used again.

CREATE_TIME_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with the time the process began.

    `start_ticks` (Linux: clock ticks since boot) does not move when the wall clock is set;
    `create_time` (seconds since the epoch) is what other tools show, and what decides elsewhere.
    """

    pid: int
    create_time: float
    start_ticks: int | None = None

    def is_alive(self) -> bool:
        """Whether this very process runs. A zombie has ended; another process under its number is not it."""
        now = identify(self.pid)
        if now is None:
            return False
        if None not in (self.start_ticks, now.start_ticks):
            return self.start_ticks == now.start_ticks
        return abs(self.create_time - now.create_time) <= CREATE_TIME_TOLERANCE_S


def identify(pid: int) -> ProcessId | None:
    """The process that has this number now; None when there is none, or only a zombie."""
    if sys.platform != "linux":
        created_s = None if asked(pid, "status") == "zombie" else asked(pid, "create_time")
        return None if created_s is None else ProcessId(pid, created_s)
    fields = stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    ticks = int(fields[19])
    return ProcessId(pid, boot_time_s() + ticks / os.sysconf("SC_CLK_TCK"), ticks)


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state first); None when the process is gone.

    The second field, the command's name, may hold spaces and brackets: proc(5).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return None


def all_pids() -> list[int]:
    """Every process of this system that can be seen."""
    if sys.platform == "linux":
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no Path for each process
    import psutil

    return list(psutil.pids())


def asked(pid: int, question: str) -> Any:
    """What psutil says of a process where there is no /proc; None where it has ended, or tells this user nothing."""
    import psutil

    try:
        return getattr(psutil.Process(pid), question)()
    except (psutil.Error, OSError, AttributeError):  # macOS tells nobody some of it
        return None


def boot_time_s() -> float:
    """When this computer was started, in seconds since the epoch; 0.0 where the system does not say."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), 0.0)


@lru_cache(maxsize=1)
def machine_identity() -> str:
    """Names the host, its boot and its process numbers: pids of another identity say nothing here.

    Two containers on one computer differ in their pid namespace, a computer before and after a
    restart in its boot id.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} "


def this_process() -> ProcessId:
    return identify(os.getpid()) or ProcessId(os.getpid(), 0.0)


# The lock of a run folder: one keeper at a time, held by the kernel, gone with its processes.

LOCK_FILE = ".lock"
LockSeen = Literal["held", "free", "unknown"]
"""unknown: there is no lock file, it may not be read, or the file system knows no locks."""


@dataclass(frozen=True, slots=True)
class RunLock:
    """An exclusive `flock` on the run folder's lock file.

    Children made by fork hold it too, until the last of them ends: the keeper's guard keeps it while
    it clears up after a killed keeper. Children made by exec do not inherit it.
    """

    descriptor: int
    note: str | None = None
    """Why nothing is locked, where the file system knows no locks."""

    @classmethod
    def take(cls, folder: Path, wait_s: float = 0.0) -> RunLock | None:
        """The lock, or None when another process still holds it after `wait_s`. Raises OSError."""
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + wait_s
        while (seen := _lock(descriptor, fcntl.LOCK_EX)) == "held":
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        if seen == "free":
            return cls(descriptor)
        return cls(descriptor, tr("This file system does not support locks: a second start is not prevented."))

    def release(self) -> None:
        os.close(self.descriptor)


def look_at_lock(folder: Path) -> LockSeen:
    """Whether somebody holds the lock of a run, from this computer or (NFS) another one.

    "held" is certain; "free" is not where each computer or container keeps locks to itself. The lock is
    taken shared for a moment: a start at that very moment waits for it.
    """
    try:
        # A pipe under this name would block.
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "unknown"
    try:
        return _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> LockSeen:
    """free: it was, and is now locked for this process."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return "held" if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else "unknown"
    return "free"


# The written rule for `lost`: when can the keeper of a run never write again? The table is in docs/runs.md.
#
# A run that is wrongly called lost may be started twice; one that is wrongly called running waits for
# nothing. So a proof is needed: the process is not there, the computer was restarted, or nobody holds the
# lock and there was no sign of life for HEARTBEAT_LOST_S. A clock alone proves nothing where processes can be seen.

HEARTBEAT_LOST_S = 60.0

Why = Literal["copied", "no_process", "restarted", "silent"]
"""copied: the keeper that the state names keeps another folder. no_process: it does not run any more.
restarted: its computer was started again since. silent: it cannot be seen, and gives no sign of life."""


def lock_seen(run: RunFolder, held: RunLock | None) -> LockSeen:
    """What the lock tells; `held`: the run's lock where the reader holds it itself, which tells of everybody else."""
    if held is None:
        return look_at_lock(run.path)
    return "unknown" if held.note else "free"


def why_lost(run: RunFolder, state: RunState, now_s: float, held: RunLock | None = None) -> Why | None:
    """Why an active run is lost; None when it is not, or when nothing proves it. Each thing is looked at only where it
    decides."""
    if not state.is_active:
        return None
    if state.machine == machine_identity():
        if state.folder is not None and _is_elsewhere(state.folder, run):
            return "copied"
        if state.supervisor is not None:
            return None if state.supervisor.is_alive() else "no_process"
    lock = lock_seen(run, held)
    if lock == "held":
        return None
    if _was_restarted(state):
        return "restarted"
    # Neither a heartbeat nor a written state.json of late: the two may go by different clocks.
    written_s = run.state_json.stat().st_mtime if is_file(run.state_json) else None
    signs = [time_s for time_s in (state.heartbeat_s, written_s) if time_s is not None]
    if any(abs(now_s - time_s) <= HEARTBEAT_LOST_S for time_s in signs):
        return None
    # A heartbeat from the future comes from a clock that is wrong: only a lock that is free says more.
    return "silent" if lock == "free" or (state.heartbeat_s or 0.0) < now_s else None


def _is_elsewhere(recorded: str, run: RunFolder) -> bool:
    """Whether the folder that was recorded exists and is not the one that is read."""
    try:
        return RunFolder(Path(recorded)).is_run() and not Path(recorded).samefile(run.path)
    except (OSError, ValueError):
        return False


def _was_restarted(state: RunState) -> bool:
    """Same host, another boot, and no heartbeat in this boot: another computer of that name would have one."""
    then, now = (state.machine or "").split(" "), machine_identity().split(" ")
    if then[0] != now[0] or then[1:2] == now[1:2] or state.heartbeat_s is None:
        return False
    return state.heartbeat_s < boot_time_s()


def lost_words(why: Why, state: RunState) -> str:
    """One sentence for people: how the keeper of the run was lost, and when it was last heard of."""
    if why == "copied":
        return tr(
            "This folder is a copy of {path}, made while that run was in progress; nothing is running in this folder.",
            path=state.folder,
        )
    last = tr("an unknown time") if state.heartbeat_s is None else moment_words(state.heartbeat_s, "%Y-%m-%d %H:%M:%S")
    if why == "restarted":
        return tr("The machine was restarted while this run was in progress (last heartbeat {time}).", time=last)
    return tr("The supervisor of this run disappeared without a final record (last heartbeat {time}).", time=last)
