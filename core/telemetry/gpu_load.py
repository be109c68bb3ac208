"""GpuLoads: what each GPU of this computer does now, to choose by: free memory, how busy it is, who holds it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.telemetry.gpu import GpuSampler

MOVED_BYTES = 2**29
"""So much more or less on a card is another capacity to plan with; what a desktop takes and gives is less."""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process that holds memory of a GPU."""

    pid: int
    name: str | None
    """None where it cannot be seen from here: of another container."""
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """One card or MIG slice. What cannot be read is None."""

    index: int
    uuid: str | None
    used_bytes: int | None = None
    utilization_percent: int | None = None
    holders: tuple[GpuHolder, ...] = ()
    """Who holds most comes first."""
    problem: str = ""
    """Why nothing of it can be read: it is lost."""


@dataclass(frozen=True, slots=True)
class GpuLoads:
    """All of them at one moment."""

    gpus: tuple[GpuLoad, ...] = ()
    problem: str = ""
    """Why there is none."""

    def of(self, gpu: Gpu) -> GpuLoad | None:
        """The load of one GPU of a machine; by its place where it had no UUID."""
        if gpu.uuid is not None:
            return next((load for load in self.gpus if load.uuid == gpu.uuid), None)
        return next((load for load in self.gpus if load.index == gpu.index and gpu.parent_uuid is None), None)


class LoadReader:
    """Reads the loads, again and again; its driver session stays open between two readings. Never raises."""

    def __init__(self, sampler: GpuSampler | None = None) -> None:
        self._sampler = sampler or GpuSampler()
        self._lock = threading.Lock()

    def read(self) -> GpuLoads:
        with self._lock:
            rows, unavailable = self._sampler.sample()
        return GpuLoads(tuple(_load(row, unavailable) for row in rows), unavailable.get("gpus", "") if not rows else "")

    def close(self) -> None:
        """End the driver's session: only the first one that is opened after all others are closed sees new cards."""
        with self._lock:
            self._sampler.close()


def free_bytes(gpu: Gpu, load: GpuLoad | None) -> int | None:
    """Memory of `gpu` that is free now: what was free when the machine was read, less what came to be used since.

    By the difference, since what the driver keeps for itself counts in neither: the same number as a plan's capacity.
    """
    before, used_before = gpu.memory_free_bytes, gpu.memory_other_bytes
    if before is None or used_before is None or load is None or load.used_bytes is None:
        return before
    free = before + used_before - load.used_bytes
    return max(0, free if gpu.memory_total_bytes is None else min(free, gpu.memory_total_bytes))


def is_outdated(gpus: Sequence[Gpu], loads: GpuLoads) -> bool:
    """Since `gpus` were read, some have come or gone, or much of the memory of one was taken or given back."""
    before = {gpu.uuid or str(gpu.index) for gpu in gpus if "gpu" not in gpu.unavailable}
    now = {load.uuid or str(load.index) for load in loads.gpus if not load.problem}
    return before != now or any(_has_moved(gpu, loads.of(gpu)) for gpu in gpus if gpu.visible)


def _has_moved(gpu: Gpu, load: GpuLoad | None) -> bool:
    if gpu.memory_other_bytes is None or load is None or load.used_bytes is None:
        return False
    return abs(load.used_bytes - gpu.memory_other_bytes) >= MOVED_BYTES


def _load(row: Mapping[str, Any], unavailable: Mapping[str, str]) -> GpuLoad:
    holders = [GpuHolder(one["pid"], one["name"], one["memory_used_bytes"]) for one in row["processes"] or ()]
    return GpuLoad(
        index=int(row["index"]),
        uuid=row["uuid"],
        used_bytes=row["memory_used_bytes"],
        utilization_percent=row["utilization_percent"],
        holders=tuple(sorted(holders, key=lambda one: -(one.memory_bytes or 0))),
        problem=unavailable.get(f"gpus.{row['index']}", ""),
    )
