"""The computer around the GPUs: cores, memory, disk, shared memory, and what kind of system it is."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
from trainwiz.core.hardware.cgroup import Limits, memory_groups, memory_limits, read_limits

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Memory:
    """RAM in bytes: of the machine, or of the cgroup limit where that is smaller."""

    total_bytes: int
    available_bytes: int
    limited: bool = False
    """A cgroup limit, not the machine, sets the total."""


def read_memory(root: Path = Path("/")) -> Memory:
    return memory_within(memory_limits(memory_groups(root)))


def memory_within(limits: Limits) -> Memory:
    """RAM as it is now, under `limits`."""
    machine = psutil.virtual_memory()
    limited = limits.memory_bytes is not None and limits.memory_bytes < machine.total
    total = limits.memory_bytes if limited and limits.memory_bytes is not None else int(machine.total)
    available = min(int(machine.available), total)
    if limits.memory_available_bytes is not None:
        available = min(available, limits.memory_available_bytes)
    return Memory(total, available, limited)


def count_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use: its affinity and the cgroup's quota respected, at least 1."""
    cores = len(own_cores())
    quota = read_limits(root).cpu_cores
    return max(1, cores if quota is None else min(cores, int(quota)))


def own_cores() -> list[int]:
    """Numbers of the cores of this process's affinity; of all, where the system has none."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(psutil.cpu_count() or 1))


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


def shared_memory_size(folder: Path = SHARED_MEMORY) -> int:
    """Bytes of the shared memory file system, which loader workers hand their batches through. Raises OSError."""
    return shutil.disk_usage(folder).total


def is_wsl(root: Path = Path("/")) -> bool:
    """Linux inside Windows: the kernel says "microsoft" in its release."""
    try:
        release = (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "microsoft" in release.lower()


def cpu_model(root: Path = Path("/")) -> str | None:
    """Name of the processor, or None where the system does not say it."""
    if sys.platform == "darwin":
        return _mac_processor()
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names and names[0] else platform.processor() or None


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


def cpu_has_bf16(root: Path = Path("/")) -> bool | None:
    """Whether the first processor multiplies in bf16 by instructions; None where the system does not say."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((words for name, _, words in lines if name.strip().lower() in ("flags", "features")), None)
    return None if flags is None else not BF16_FLAGS.isdisjoint(flags.split())


def os_version() -> str:
    """ "14.5" on macOS, the kernel's release elsewhere."""
    return platform.mac_ver()[0] if sys.platform == "darwin" else platform.release()
