"""What computes on which card, by NVML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.telemetry.gpu import GpuSampler


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU with the processes that compute on it; MIG slices are counted to their card."""

    index: int
    uuid: str | None
    name: str | None
    pids: tuple[int, ...]
    problem: str | None = None
    """Why its processes are not known."""


def cards() -> tuple[list[Card], str | None]:
    """(all cards, why there is none). Never raises."""
    sampler = GpuSampler()
    try:
        rows, unavailable = sampler.sample()
    finally:
        sampler.close()
    found: dict[int, Card] = {}
    for row in rows:
        index = int(row["index"])
        before = found.get(index)
        problem = unavailable.get(f"gpus.{index}") or unavailable.get(f"gpus.{index}.processes")
        pids = dict.fromkeys((*(before.pids if before else ()), *_computing(row)))
        first = before or Card(index, row.get("uuid"), row.get("name"), ())
        found[index] = Card(index, first.uuid, first.name, tuple(pids), first.problem or problem)
    return list(found.values()), None if found else unavailable.get("gpus", tr("no GPU was found"))


def _computing(row: Mapping[str, Any]) -> list[int]:
    return [process["pid"] for process in row.get("processes") or () if process.get("kind") == "compute"]
