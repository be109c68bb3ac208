"""The processes of this machine and of a training: facts, open files, samples."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.language import mark
from trainwiz.core.lines import Seldom
from trainwiz.core.run.lost import ProcessId, all_pids, asked, identify, stat_fields
from trainwiz.core.telemetry.words import KEEPER_MODULE, is_launcher, is_wrapper

# What can be asked of one process: working folder, environment, command, loaded libraries. Nothing raises.
# What is asked of many processes Linux answers by /proc, at a fraction of the cost of psutil.


def _read(pid: int, name: str) -> str:
    """A file of /proc/PID; empty where it cannot be read: another user's process, or one that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def working_folder(pid: int) -> Path | None:
    """None where it cannot be read: another user's process, or one that has ended."""
    folder = asked(pid, "cwd")
    return Path(folder) if folder else None


def environment_of(pid: int) -> dict[str, str]:
    """The variables that the process was started with; empty where they cannot be read."""
    return dict(asked(pid, "environ") or {})


def command_of(pid: int) -> list[str]:
    """The command line; empty when it cannot be read."""
    if sys.platform != "linux":
        return list(asked(pid, "cmdline") or [])
    text = _read(pid, "cmdline").rstrip("\0")
    return text.split("\0") if text else []


def maps_any(pid: int, libraries: tuple[str, ...]) -> bool:
    """Whether a shared library with one of these words in its name is loaded; False where that cannot be read."""
    # Elsewhere psutil knows no maps of another process either.
    text = _read(pid, "maps")
    return any(word in text for word in libraries)


# The processes of a job: its tree, the role of each, their memory and CPU.

Role = Literal["supervisor", "guard", "launcher", "trainer", "loader", "helper"]
ROLES = (
    mark("supervisor"), mark("guard"), mark("launcher"), mark("trainer"), mark("loader"), mark("helper"),
)  # fmt: skip
"""Codes in records, and through `tr` words for people."""

HELPERS = ("multiprocessing.resource_tracker", "torch._inductor", "forkserver")

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

SCAN_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a tree."""

    pid: int
    parent: int
    started_ticks: int
    cpu_s: float
    rss_bytes: int
    zombie: bool


def tree_of(root_pid: int) -> list[Member]:
    """`root_pid` and all its living descendants, parents before children."""
    table = ProcessTable()
    return [table.members[pid] for pid in table.tree(root_pid)]


def member_of(pid: int) -> Member | None:
    """One process, on Linux as /proc/PID/stat shows it (proc(5)); None when it is gone."""
    if sys.platform != "linux":
        return _member_with_psutil(pid)
    fields = stat_fields(pid)
    if fields is None or len(fields) < 22:
        return None
    return Member(
        pid=pid,
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        zombie=fields[0] in ("Z", "X"),
    )


def _member_with_psutil(pid: int) -> Member | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Member(
                pid=pid,
                parent=process.ppid(),
                started_ticks=int(process.create_time() * 100),
                cpu_s=times.user + times.system,
                rss_bytes=process.memory_info().rss,
                zombie=process.status() == psutil.STATUS_ZOMBIE,
            )
    except psutil.Error:
        return None


def roles_of(members: list[Member]) -> dict[int, Role]:
    """What each member of a tree (parents before children) does in a training job, by its own and its parent's command.

    The keeper forks its guard and loaders are forked from trainers: a child with the very command of
    its parent is such a helper. The first other child of a keeper is the launcher, whatever it is called; later
    ones are orphans that came to the keeper.
    """
    commands = {member.pid: command_of(member.pid) for member in members}
    roles: dict[int, Role] = {}
    launched: dict[int, int] = {}
    for member in sorted(members, key=lambda member: (member.started_ticks, member.pid)):
        if commands[member.pid] != commands.get(member.parent):
            launched.setdefault(member.parent, member.pid)
    for member in members:
        above = roles.get(member.parent)
        same = commands[member.pid] == commands.get(member.parent, [])
        if above == "supervisor" and not same:
            roles[member.pid] = "launcher" if launched[member.parent] == member.pid else "helper"
        elif above in ("trainer", "loader") and same:
            roles[member.pid] = "trainer" if _has_own_rank(member) else "loader"
        else:
            roles[member.pid] = _role_of(commands[member.pid], above)
    return roles


def _role_of(command: list[str], above: Role | None) -> Role:
    """By its own words and the role of its parent; None for the root of the tree."""
    words = " ".join(command)
    if KEEPER_MODULE in words:
        return "guard" if above == "supervisor" else "supervisor"
    if any(name in words for name in HELPERS):
        return "helper"
    if is_launcher(command) or (above in (None, "launcher") and is_wrapper(command)):
        return "launcher"
    is_spawned = "multiprocessing.spawn" in words
    if above in (None, "launcher") and not is_spawned:
        return "trainer"
    return "loader" if above in ("trainer", "loader") and is_spawned else "helper"


def _has_own_rank(member: Member) -> bool:
    """Whether a process with its parent's command is a rank: Lightning starts those of a machine from the first one.

    A forked loader worker shows its parent's environment, a started rank one of its own.
    """
    own, above = (environment_of(pid).get("LOCAL_RANK") for pid in (member.pid, member.parent))
    return own is not None and own != above


class ProcessSampler:
    """Samples the tree below one process again and again, at little cost.

    Looking for new processes means reading all of /proc; it is done seldom. In between only the known members
    are read.
    """

    def __init__(self, root_pid: int) -> None:
        self.root_pid = root_pid
        self._members: list[Member] = []
        self._roles: dict[int, Role] = {}
        self._cpu: dict[tuple[int, int], tuple[float, float]] = {}
        self._look = Seldom(SCAN_EVERY_S)

    def sample(self) -> list[dict[str, Any]]:
        """[{pid, role, rss_bytes, cpu_percent}]; CPU since the last sample, None in a process's first."""
        if not self._look.do(self._scan):
            again = ((member_of(member.pid), member) for member in self._members)
            self._members = [
                now for now, then in again if now and now.started_ticks == then.started_ticks and not now.zombie
            ]
        now_s, rows, before = time.monotonic(), [], self._cpu
        self._cpu = {(member.pid, member.started_ticks): (now_s, member.cpu_s) for member in self._members}
        for member in self._members:
            percent = None
            if (member.pid, member.started_ticks) in before:
                then_s, cpu_s = before[member.pid, member.started_ticks]
                percent = round(max(0.0, member.cpu_s - cpu_s) / max(now_s - then_s, 1e-6) * 100, 1)
            role = self._roles.get(member.pid, "helper")
            rows.append({"pid": member.pid, "role": role, "rss_bytes": member.rss_bytes, "cpu_percent": percent})
        return rows

    def _scan(self) -> None:
        self._members = tree_of(self.root_pid)
        self._roles = roles_of(self._members)


def trainers_below(root_pid: int) -> list[ProcessId]:
    """The training processes (ranks) of the tree: those that may be asked to stop."""
    found = (identify(pid) for pid, role in roles_of(tree_of(root_pid)).items() if role == "trainer")
    return [process for process in found if process is not None]


class ProcessTable:
    """Who is whose child. What goes away while it is read is absent; nothing raises."""

    def __init__(self) -> None:
        found = (member_of(pid) for pid in all_pids())
        self.members: dict[int, Member] = {member.pid: member for member in found if member is not None}
        self.children_of: dict[int, list[int]] = {}
        for member in self.members.values():
            self.children_of.setdefault(member.parent, []).append(member.pid)
        self._commands: dict[int, list[str]] = {}

    def is_alive(self, pid: int) -> bool:
        member = self.members.get(pid)
        return member is not None and not member.zombie

    def command(self, pid: int) -> list[str]:
        if pid not in self._commands:
            self._commands[pid] = command_of(pid)
        return self._commands[pid]

    def children(self, pid: int) -> list[int]:
        return [child for child in self.children_of.get(pid, ()) if self.is_alive(child)]

    def ancestors(self, pid: int) -> Iterator[int]:
        """The parent, its parent, ...; ends also where numbers that were used again make a ring."""
        seen = {pid}
        while pid in self.members and (above := self.members[pid].parent) in self.members and above not in seen:
            seen.add(above)
            yield above
            pid = above

    def tree(self, root: int) -> list[int]:
        """`root` and all below it, parents first."""
        if not self.is_alive(root):
            return []
        order = [root]
        for pid in order:
            order.extend(child for child in self.children(pid) if child not in order)
        return order


# What a process has open: files by path, and where its standard output goes. Linux: /proc/PID/fd, elsewhere psutil.

Kind = Literal["file", "pipe", "terminal", "other"]
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One descriptor. `name` is a path for a file, "pipe:[1234]" for a pipe."""

    descriptor: int
    name: str

    @property
    def kind(self) -> Kind:
        if self.name.startswith("pipe:"):
            return "pipe"
        if self.name.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            return "terminal"
        is_file = self.name.startswith("/") and not self.name.startswith(("/dev/", "/proc/", "/sys/", "/memfd:"))
        return "file" if is_file else "other"

    @property
    def path(self) -> Path | None:
        return Path(self.name) if self.kind == "file" else None


def open_files(pid: int) -> list[OpenFile] | None:
    """None where this user may not look, or the process is gone. Files that were deleted are left out."""
    if sys.platform != "linux":
        files = asked(pid, "open_files")
        return None if files is None else [OpenFile(file.fd, file.path) for file in files]
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            descriptors = [entry.name for entry in entries]
    except OSError:
        return None
    found = []
    for descriptor in descriptors:
        try:
            name = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - a pipe is no path
        except OSError:
            continue
        if not name.endswith(" (deleted)"):
            found.append(OpenFile(int(descriptor), name))
    return found


def is_written(pid: int, descriptor: int) -> bool:
    """Whether the descriptor was opened for writing; True where that cannot be told."""
    flags = re.search(r"^flags:\s*([0-7]+)", _read(pid, f"fdinfo/{descriptor}"), re.MULTILINE)
    return flags is None or bool(int(flags[1], 8) & WRITING)


def written_files(pid: int, files: list[OpenFile]) -> list[Path]:
    """Of what the process has open, the files that it has open for writing."""
    return [file.path for file in files if file.path is not None and is_written(pid, file.descriptor)]


def written_through(pipe: str) -> Iterator[Path]:
    """The files into which a reader of `pipe` ("pipe:[1234]") writes: `python train.py | tee train.log`."""
    for pid in all_pids():
        files = open_files(pid) or []
        if any(file.descriptor == 0 and file.name == pipe for file in files):
            yield from written_files(pid, files)
