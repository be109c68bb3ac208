"""One reading of the computer around the GPUs: the `host` of a line of system.jsonl."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
from trainwiz.core.hardware.cgroup import memory_groups, memory_limits
from trainwiz.core.hardware.host import memory_within, nearest_existing
from trainwiz.core.language import tr

HOST_VALUES = (
    "ram_used_bytes",
    "ram_total_bytes",
    "swap_used_bytes",
    "swap_total_bytes",
    "cpu_percent",
    "disk_free_bytes",
    "disk_total_bytes",
)


def sample_host(disk_path: Path) -> dict[str, Any]:
    """HOST_VALUES and `unavailable`. What cannot be read is None, with its reason under `unavailable`.

    RAM respects the cgroup's limit, as in the plan. `cpu_percent` is of all cores of the machine (0..100)
    since the last call in this process. The disk is the one that `disk_path` lies on.
    """
    line: dict[str, Any] = dict.fromkeys(HOST_VALUES)
    unavailable: dict[str, str] = {}
    for names, read in (
        (("ram_used_bytes", "ram_total_bytes"), _ram),
        (("swap_used_bytes", "swap_total_bytes"), _swap),
        (("cpu_percent",), _cpu),
        (("disk_free_bytes", "disk_total_bytes"), lambda: _disk(disk_path)),
    ):
        _read_into(line, unavailable, names, read)
    return line | {"unavailable": unavailable}


def _read_into(
    line: dict[str, Any], unavailable: dict[str, str], names: tuple[str, ...], read: Callable[[], tuple[Any, ...]]
) -> None:
    try:
        line |= dict(zip(names, read(), strict=True))
    except (OSError, psutil.Error, RuntimeError) as error:
        reason = tr(getattr(error, "strerror", None) or str(error)) or type(error).__name__
        unavailable |= dict.fromkeys(names, reason)


@lru_cache(maxsize=1)
def _groups_of(minute: int) -> tuple[Path, ...]:
    """Finding the groups costs ten times as much as asking them, and they hardly ever change."""
    return memory_groups()


def _ram() -> tuple[int, int]:
    memory = memory_within(memory_limits(_groups_of(int(time.monotonic() / 60))))
    return memory.total_bytes - memory.available_bytes, memory.total_bytes


def _swap() -> tuple[int, int]:
    swap = psutil.swap_memory()
    return int(swap.used), int(swap.total)


def _cpu() -> tuple[float]:
    return (float(psutil.cpu_percent(interval=None)),)


def _disk(path: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(nearest_existing(path))
    return usage.free, usage.total
