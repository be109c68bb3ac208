"""Limits that a container or a batch system sets: memory and CPU of cgroups, version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of the page size; nothing real comes near."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The tightest of the limits on this process; None: not limited."""

    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    """What is left under the limits; page cache that can be dropped counts as free."""
    cpu_cores: float | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    folder: Path
    root: str
    """The cgroup that the folder shows: "/" on a host, the container's own inside one."""
    controllers: frozenset[str]
    """Empty for version 2."""


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits of the process that asks. `root` holds proc/ and sys/ (tests give another one).

    Every group from the process's own up to the top can limit it, so all of them are read.
    """
    memory = memory_limits(memory_groups(root))
    return replace(
        memory,
        cpu_cores=min(
            (quota for group in _groups(root, "cpu") if (quota := _cpu_quota(group)) is not None), default=None
        ),
    )


def memory_groups(root: Path = Path("/")) -> tuple[Path, ...]:
    """The folders of the groups that can limit this process's memory. They stay the same for long."""
    return tuple(_groups(root, "memory"))


def memory_limits(groups: Iterable[Path]) -> Limits:
    """Only the memory of `groups`, as it is now: cheap enough for once a second."""
    limits: list[int] = []
    available: list[int] = []
    for group in groups:
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit is None or limit >= NO_LIMIT_BYTES:
            continue
        limits.append(limit)
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
        available.append(max(0, limit - max(0, used - _droppable(group))))
    return Limits(min(limits, default=None), min(available, default=None))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, its own first, for one controller in both versions."""
    paths = _own_paths(root)
    for mount in _mounts(root):
        if mount.controllers and controller not in mount.controllers:
            continue
        path = paths.get(controller if mount.controllers else "")
        if path is None:
            continue
        inside = path.removeprefix(mount.root.rstrip("/")) if path.startswith(mount.root) else ""
        top = root / mount.folder.relative_to("/")
        folder = top / inside.strip("/")
        # In a container the path may be the host's: its own group is then what the mount shows.
        if not folder.is_dir():
            folder = top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _own_paths(root: Path) -> dict[str, str]:
    """Controller name ("" for version 2) -> path of this process's group."""
    paths: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            paths[name] = path
    return paths


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        controllers = frozenset() if kind[0] == "cgroup2" else frozenset(kind[2].split(","))
        yield _Mount(Path(_unescaped(fields[4])), _unescaped(fields[3]), controllers)


def _unescaped(path: str) -> str:
    """mountinfo writes a blank as \\040."""
    return path.replace("\\040", " ").replace("\\134", "\\")


def _cpu_quota(group: Path) -> float | None:
    """Cores that the group may use: quota over period, in both spellings."""
    words = (_text(group / "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _droppable(group: Path) -> int:
    """File pages not used lately: the kernel drops them before it kills."""
    found = {}
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"} and value.isdigit():
            found[name] = int(value)
    return found.get("total_inactive_file", found.get("inactive_file", 0))


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.removeprefix("-").isdigit() else None


def _lines(path: Path) -> list[str]:
    return (_text(path) or "").splitlines()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
