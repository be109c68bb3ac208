"""The computer around the GPUs: cores, memory, disk, containers, network, Apple's GPU."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

import psutil
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.language import tr

ROOT = Path("/")
"""Holds proc/, sys/ and etc/; tests have another one."""

# Limits that a container or a batch system sets: memory and CPU of cgroups, version 1 and 2.

CGROUPS = "sys/fs/cgroup"


def control_groups(controller: str) -> Iterator[tuple[Path, Path]]:
    """(where the groups of version 2, or of the controller in version 1, begin; the one that this process is in)."""
    lines = (line.split(":", 2) for line in _lines(ROOT / "proc/self/cgroup") if line.count(":") > 1)
    for _, controllers, path in lines:
        if not controllers or controller in controllers.split(","):
            top = ROOT / CGROUPS / (controller if controllers else "")
            group = top / path.strip("/")
            # In a container the path may be the host's: its own group is then what the mount shows.
            yield top, group if group.is_dir() else top


def _limiting(controller: str) -> Iterator[Path]:
    """The folders of this process's groups and of those above them: the tightest limit counts."""
    for top, group in control_groups(controller):
        yield group
        while group != top:
            group = group.parent
            yield group


def _cpu_quota(group: Path) -> float:
    """Cores that the group may use: quota over period, in both spellings; infinite where it has no limit."""
    words = (
        text_of(group / "cpu.max") or f"{text_of(group / 'cpu.cfs_quota_us')} {text_of(group / 'cpu.cfs_period_us')}"
    )
    quota, period = (int(word) if word.isdigit() else 0 for word in (*words.split(), "", "")[:2])
    return quota / period if quota and period else inf


def _number(path: Path) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None


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
    """As it is now: cheap enough for once a second."""
    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    for group in _limiting("memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit is not None:
            used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
            # File pages not used lately: the kernel drops them before it kills. Version 1 counts those of groups below apart.
            stat = dict(line.split(" ", 1) for line in _lines(group / "memory.stat") if " " in line)
            droppable = int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)
            total = min(total, limit)
            available = min(available, limit - max(0, used - droppable))
    return Memory(total, max(0, min(available, total)), limited=total < machine.total)


def count_cores() -> int:
    """Cores that this process may use: its affinity and the cgroup's quota respected, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    return max(1, int(min(cores, min(map(_cpu_quota, _limiting("cpu")), default=inf))))


def nearest_existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists: where its files would come to lie."""
    path = path.absolute()
    return next((place for place in (path, *path.parents) if place.exists()), Path(path.anchor))


def free_disk(path: Path) -> int:
    """Bytes that this user can still write at `path` or, before it exists, at its nearest parent. Raises OSError."""
    return shutil.disk_usage(nearest_existing(path)).free


def cpu_model() -> str | None:
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
        return None
    return _of_cpu("model name") or platform.processor() or None


def _of_cpu(*names: str) -> str | None:
    """What Linux says of the first processor under one of these names."""
    lines = (line.partition(":") for line in _lines(ROOT / "proc/cpuinfo"))
    return next((value.strip() for name, _, value in lines if name.strip().lower() in names), None)


BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux names them: products in bf16 of x86 (the first two) and of ARM."""


def cpu_has_bf16() -> bool | None:
    """Whether the first processor multiplies in bf16 by instructions; None where the system does not say."""
    flags = _of_cpu("flags", "features")
    return None if flags is None else not BF16_FLAGS.isdisjoint(flags.split())


def os_version() -> str:
    """ "14.5" on macOS, the kernel's release elsewhere."""
    return platform.mac_ver()[0] if sys.platform == "darwin" else platform.release()


# The network of this computer: interfaces that other nodes can reach, and InfiniBand adapters.

NOT_OUTWARD = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel")
"""Beginnings of names: loopback, and bridges that end in this machine."""
EVERYWHERE = "00000000"
"""Destination of the default route in /proc/net/route."""


def interfaces() -> tuple[str, ...]:
    try:
        up = {name for name, state in psutil.net_if_stats().items() if state.isup}
        addresses = psutil.net_if_addrs()
    except (OSError, RuntimeError):
        return ()
    names = [
        name
        for name in sorted(up.intersection(addresses))
        if not name.startswith(NOT_OUTWARD) and any(address.family == socket.AF_INET for address in addresses[name])
    ]
    # The kernel lists routes to the same place by their metric, the one that it takes first; the file is Linux's.
    routes = (line.split() for line in _lines(ROOT / "proc/net/route"))
    default = next((fields[0] for fields in routes if fields[1:2] == [EVERYWHERE]), None)
    return tuple(sorted(names, key=lambda name: name != default))


def infiniband_adapters() -> tuple[str, ...] | None:
    """InfiniBand and RoCE adapters; () where the kernel knows none, None where there is no such list to read."""
    if sys.platform != "linux":
        return None
    return tuple(sorted(entry.name for entry in (ROOT / "sys/class/infiniband").glob("*")))


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
    return tuple(int(part) for part in (version or "").split(".") if part.isdigit())


def apple_gpu(machine: str, macos: str, cpu_model: str | None, memory: Memory) -> Machine:
    """A Machine of which only the GPU is known, or why torch's MPS cannot be used here.

    `machine` is what `platform.machine()` says: under Rosetta a Python for Intel says "x86_64" on an M-series Mac.
    """
    if machine != "arm64":
        why = tr("MPS needs Apple silicon and a Python built for it (this one is for Intel)")
        return Machine(unavailable={"gpus": why})
    if version_tuple(macos) < OLDEST_MACOS:
        return Machine(unavailable={"gpus": tr("MPS needs macOS 12.3, this is {version}", version=macos)})
    total = memory.total_bytes
    working_set = int(total * (UNIFIED_SHARE_SMALL if total <= SMALL_BYTES else UNIFIED_SHARE))
    spec = find_gpu(cpu_model) if cpu_model else None
    gpu = Gpu(
        index=0,
        name=cpu_model or tr("Apple GPU"),
        memory_total_bytes=working_set,
        memory_free_bytes=min(working_set, memory.available_bytes),
        catalogue_name=spec.name if spec is not None else None,
    )
    return Machine((gpu,))
