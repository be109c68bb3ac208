"""ProcessId: one process beyond doubt, though its number may be used again."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

ProcessSeen = Literal["alive", "gone", "hidden"]
"""hidden: a process has the number, and the system shows no more of it to this user (hidepid)."""
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

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "create_time": self.create_time, "start_ticks": self.start_ticks}

    @classmethod
    def from_json(cls, document: Any) -> ProcessId | None:
        """None when the document does not describe a process."""
        if not isinstance(document, dict):
            return None
        pid, created, ticks = document.get("pid"), document.get("create_time"), document.get("start_ticks")
        if not isinstance(pid, int) or pid <= 0 or not isinstance(created, int | float):
            return None
        return cls(pid, float(created), ticks if isinstance(ticks, int) else None)

    def is_alive(self) -> bool:
        """Whether this very process runs. A zombie has ended; another process under its number is not it."""
        now = identify(self.pid)
        if now is None:
            return False
        if self.start_ticks is not None and now.start_ticks is not None:
            return self.start_ticks == now.start_ticks
        return abs(self.create_time - now.create_time) <= CREATE_TIME_TOLERANCE_S


def identify(pid: int) -> ProcessId | None:
    """The process that has this number now; None when there is none, or only a zombie."""
    if sys.platform != "linux":
        return _identify_with_psutil(pid)
    fields = stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    ticks = int(fields[19])
    return ProcessId(pid, boot_time_s() + ticks / os.sysconf("SC_CLK_TCK"), ticks)


def look_for(process: ProcessId) -> ProcessSeen:
    """Like `ProcessId.is_alive`, telling a process that may not be looked at from one that has ended."""
    if process.is_alive():
        return "alive"
    if sys.platform == "linux" and stat_fields(process.pid) is None and _belongs_to_another(process.pid):
        return "hidden"
    return "gone"


def _belongs_to_another(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


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
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    import psutil

    return list(psutil.pids())


def _identify_with_psutil(pid: int) -> ProcessId | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid, process.create_time())
    except psutil.Error:
        return None


def boot_time_s() -> float:
    """When this computer was started, in seconds since the epoch; 0.0 where the system does not say."""
    try:
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


@lru_cache(maxsize=1)
def machine_identity() -> str:
    """Names the host, its boot and its process numbers: pids of another identity say nothing here.

    Two containers on one computer differ in their pid namespace, a computer before and after a
    restart in its boot id.
    """
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append("")
    return " ".join(parts)


def this_process() -> ProcessId:
    found = identify(os.getpid())
    if found is None:
        return ProcessId(os.getpid(), 0.0)
    return found
