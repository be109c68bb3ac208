"""The computer around the GPUs: cores, memory, disk, containers, network, Apple's GPU."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.language import tr

ROOT = Path("/")
"""Holds proc/, sys/ and etc/; tests have another one."""

# Limits that a container or a batch system sets: memory and CPU of cgroups, version 1 and 2.

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of the page size; nothing real comes near."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The tightest of the limits on this process; None: not limited."""

    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    """What is left under the limits; page cache that can be dropped counts as free."""


def memory_groups() -> tuple[Path, ...]:
    """The folders of the groups that can limit this process's memory. They stay the same for long."""
    return tuple(_groups("memory"))


def memory_limits(groups: Iterable[Path]) -> Limits:
    """Only the memory of `groups`, as it is now: cheap enough for once a second."""
    limits: list[int] = []
    available: list[int] = []
    for group in groups:
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit is not None and limit < NO_LIMIT_BYTES:
            used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
            limits.append(limit)
            available.append(max(0, limit - max(0, used - _droppable(group))))
    return Limits(min(limits, default=None), min(available, default=None))


def _groups(controller: str) -> Iterator[Path]:
    paths = _own_paths()
    for mount, shown, controllers in _mounts():
        path = paths.get(controller if controllers else "")
        if path is None or (controllers and controller not in controllers):
            continue
        inside = path.removeprefix(shown.rstrip("/")) if path.startswith(shown) else ""
        top = ROOT / mount.lstrip("/")
        folder = top / inside.strip("/")
        # In a container the path may be the host's: its own group is then what the mount shows.
        if not folder.is_dir():
            folder = top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _own_paths() -> dict[str, str]:
    """Controller name ("" for version 2) -> path of this process's group."""
    paths: dict[str, str] = {}
    for line in _lines(ROOT / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            paths[name] = path
    return paths


def _mounts() -> Iterator[tuple[str, str, list[str]]]:
    """(folder, the cgroup that it shows: "/" on a host, the container's own inside one, controllers: none for version 2)."""
    for line in _lines(ROOT / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        # mountinfo writes a blank as \\040.
        folder, shown = (fields[place].replace("\\040", " ").replace("\\134", "\\") for place in (4, 3))
        yield folder, shown, [] if kind[0] == "cgroup2" else kind[2].split(",")


def _cpu_quota(group: Path) -> float | None:
    """Cores that the group may use: quota over period, in both spellings."""
    words = text_of(group / "cpu.max").split()
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
    text = text_of(path).strip()
    return int(text) if text.removeprefix("-").isdigit() else None


def _lines(path: Path) -> list[str]:
    return text_of(path).splitlines()


def text_of(path: Path) -> str:
    """ "" for what cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Memory:
    """RAM in bytes: of the machine, or of the cgroup limit where that is smaller."""

    total_bytes: int
    available_bytes: int
    limited: bool = False
    """A cgroup limit, not the machine, sets the total."""


def read_memory() -> Memory:
    return memory_within(memory_limits(memory_groups()))


def memory_within(limits: Limits) -> Memory:
    machine = psutil.virtual_memory()
    limited = limits.memory_bytes is not None and limits.memory_bytes < machine.total
    total = limits.memory_bytes if limited and limits.memory_bytes is not None else int(machine.total)
    available = min(int(machine.available), total)
    if limits.memory_available_bytes is not None:
        available = min(available, limits.memory_available_bytes)
    return Memory(total, available, limited)


def count_cores() -> int:
    """Cores that this process may use: its affinity and the cgroup's quota respected, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    quota = min((quota for group in _groups("cpu") if (quota := _cpu_quota(group)) is not None), default=None)
    return max(1, cores if quota is None else min(cores, int(quota)))


def nearest_existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists: where its files would come to lie."""
    path = path.absolute()
    for candidate in (path, *path.parents):
        if candidate.exists():
            return candidate
    return Path(path.anchor)


def free_disk(path: Path) -> int:
    """Bytes that this user can still write at `path` or, before it exists, at its nearest parent. Raises OSError."""
    return shutil.disk_usage(nearest_existing(path)).free


def cpu_model() -> str | None:
    if sys.platform == "darwin":
        return _mac_processor()
    lines = _lines(ROOT / "proc/cpuinfo")
    names = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(names, "") or platform.processor() or None


def _mac_processor() -> str | None:
    try:
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux names them: products in bf16 of x86 (the first two) and of ARM."""


def cpu_has_bf16() -> bool | None:
    """Whether the first processor multiplies in bf16 by instructions; None where the system does not say."""
    lines = (line.partition(":") for line in _lines(ROOT / "proc/cpuinfo"))
    flags = next((words for name, _, words in lines if name.strip().lower() in ("flags", "features")), None)
    return None if flags is None else not BF16_FLAGS.isdisjoint(flags.split())


def os_version() -> str:
    """ "14.5" on macOS, the kernel's release elsewhere."""
    return platform.mac_ver()[0] if sys.platform == "darwin" else platform.release()


# The network of this computer: interfaces that other nodes can reach, and InfiniBand adapters.

NOT_OUTWARD = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel")
"""Beginnings of names: loopback, and bridges that end in this machine."""
ROUTES = "proc/net/route"
ADAPTERS = "sys/class/infiniband"
EVERYWHERE = "00000000"
"""Destination of the default route in /proc/net/route."""


def interfaces() -> tuple[str, ...]:
    try:
        up = psutil.net_if_stats()
        addresses = psutil.net_if_addrs()
    except (OSError, RuntimeError):
        return ()
    names = [
        name
        for name in sorted(addresses)
        if name in up
        and up[name].isup
        and not name.startswith(NOT_OUTWARD)
        and any(address.family == socket.AF_INET for address in addresses[name])
    ]
    # The default route with the lowest metric; this file exists on Linux only.
    lines = [line.split() for line in _lines(ROOT / ROUTES)[1:]]
    routes = [fields for fields in lines if len(fields) > 6 and fields[1] == EVERYWHERE]
    best = min(routes, key=lambda fields: int(fields[6]) if fields[6].isdecimal() else 0, default=[None])
    return tuple(sorted(names, key=lambda name: name != best[0]))


def infiniband_adapters() -> tuple[str, ...] | None:
    """InfiniBand and RoCE adapters; () where the kernel knows none, None where there is no such list to read."""
    if sys.platform != "linux":
        return None
    try:
        return tuple(sorted(entry.name for entry in (ROOT / ADAPTERS).iterdir()))
    except FileNotFoundError:
        return ()
    except OSError:
        return None


# Apple Silicon: one GPU that shares the machine's memory. Decided from the platform, without torch.

UNIFIED_SHARE = 0.75
"""Metal's recommended working set: two thirds of the RAM up to 36 GB, three quarters above."""
UNIFIED_SHARE_SMALL = 2 / 3
SMALL_BYTES = 36 * 1024**3

OLDEST_MACOS = (12, 3)
"""torch's MPS backend needs this macOS."""

BF16_MACOS = (14, 0)
"""The first macOS whose Metal has bfloat16."""


def version_tuple(version: str | None) -> tuple[int, ...]:
    """ "14.5" -> (14, 5); () where it is not known."""
    parts = (version or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def apple_gpu(
    machine: str, macos: str, cpu_model: str | None, ram_total_bytes: int, ram_available_bytes: int
) -> tuple[Gpu | None, str | None]:
    """(the GPU, None), or (None, why torch's MPS cannot be used here).

    `machine` is what `platform.machine()` says: under Rosetta a Python for Intel says "x86_64" on an M-series Mac.
    """
    if machine != "arm64":
        return None, tr("MPS needs Apple silicon and a Python built for it (this one is for Intel)")
    if version_tuple(macos) < OLDEST_MACOS:
        return None, tr("MPS needs macOS 12.3, this is {version}", version=macos or tr("unknown"))
    working_set = int(ram_total_bytes * (UNIFIED_SHARE_SMALL if ram_total_bytes <= SMALL_BYTES else UNIFIED_SHARE))
    spec = find_gpu(cpu_model) if cpu_model else None
    gpu = Gpu(
        index=0,
        name=cpu_model or tr("Apple GPU"),
        memory_total_bytes=working_set,
        memory_free_bytes=min(working_set, ram_available_bytes),
        catalogue_name=spec.name if spec is not None else None,
    )
    return gpu, None
