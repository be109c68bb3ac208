"""Settles loader workers and what they prefetch: from the RAM that the training leaves free, and from the cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwiz.core.config import OriginKind
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, HostNeeds, batch_bytes, most_while_training
from trainwiz.core.estimate.loader import USUAL_PREFETCH, most_prefetch
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.match import data_digest
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.engine import cores_shared
from trainwiz.core.plan.measured_loading import MeasuredWorkers, measured_workers
from trainwiz.core.plan.memories import host_needs
from trainwiz.core.plan.words import gib

SMALL_ROWS = 50_000
MOST_WORKERS = 8
"""More loader processes for one GPU only cost RAM."""
MOST_READY_BYTES = 256 * 1024**2
"""Of batches that wait in pinned memory for one training process; most are far smaller than a megabyte."""
MOST_SHARED_BYTES = 16 * 1024**2
FEW_WORKERS_PREFETCH = 4
"""Batches that bridge a slow row where RAM, not the cores, decides the number of workers; they are small."""
RESERVE_SHARE = 0.1
"""Of the RAM that is free now: left for the page cache, a desktop, and what the prediction misses."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """How many workers each training process may have, and why not more."""

    workers: int
    why: str


def settle_workers(
    draft: Draft,
    machine: Machine,
    devices: Devices,
    data: DataSummary | None,
    rows: int | None,
    work: Workload | None,
    measurements: Sequence[Measurement] = (),
) -> None:
    """`rows` are those of the data, as far as they are known. Streaming and pinned memory are settled before.

    `measurements` of these devices, newest first: what was measured on these rows wins over a rule.
    """
    measured = measured_workers(measurements, work, data_digest(draft.view())) if measurements else None
    by_rule = _by_cores(machine, devices, rows)
    by_cores = by_rule if measured is None else _by_measurement(measured, machine, devices)
    needs = host_needs(devices, draft.view(), work, data, (0, 0, 0), rows or 0)
    limit = by_cores
    if by_cores.workers:
        limit = _by_ram(machine, replace(needs, prefetch=USUAL_PREFETCH), by_cores)
    origin: OriginKind = "detected" if limit is by_rule else "solved"
    draft.settle("data.workers", limit.workers, limit.why, origin)
    count, accumulation = int(draft.get("data.workers")), int(draft.get("batch.gradient_accumulation_steps") or 1)
    few = count == limit.workers < by_cores.workers
    prefetch = _prefetch(machine, replace(needs, workers=count), accumulation, few)
    draft.settle("data.prefetch", prefetch, _prefetch_reason(count, prefetch, accumulation))
    draft.settle(
        "data.persistent_workers", count > 0, tr("kept between epochs") if count else tr("there are no workers")
    )


def budget_bytes(machine: Machine) -> int | None:
    """RAM that a run may plan with; None where it cannot be read."""
    free = machine.ram_available_bytes
    return int(free * (1 - RESERVE_SHARE)) if free else None


def _by_cores(machine: Machine, devices: Devices, rows: int | None) -> _Limit:
    if devices.device != "cuda":
        return _Limit(0, tr("the cores are busy with the training itself"))
    if 0 < machine.ram_total_bytes < LOW_MEMORY_BYTES:
        return _Limit(0, tr("low-memory mode: under 15 GB of RAM"))
    share = max(1, machine.cpu_cores // devices.processes)
    if rows is not None and rows < SMALL_ROWS:
        return _Limit(min(2, max(1, share - 1)), tr("{rows} rows need no more", rows=f"{rows:,}"))
    workers = max(1, min(MOST_WORKERS, share - 1))
    return _Limit(workers, tr("{cores}, one left for each", cores=cores_shared(machine, devices)))


def _by_measurement(measured: MeasuredWorkers, machine: Machine, devices: Devices) -> _Limit:
    if devices.device == "cuda" and 0 < machine.ram_total_bytes < LOW_MEMORY_BYTES:
        return _Limit(0, tr("low-memory mode: under 15 GB of RAM"))
    # Each training process keeps a core for itself.
    most = max(1 if devices.device == "cuda" else 0, machine.cpu_cores // devices.processes - 1)
    if measured.needed <= most:
        return _Limit(measured.needed, measured.why)
    return _Limit(most, tr("{why}; the cores allow {n}", why=measured.why, n=most))


def _by_ram(machine: Machine, needs: HostNeeds, by_cores: _Limit) -> _Limit:
    """The most workers that fit beside the training, at most as many as the cores feed."""
    budget = budget_bytes(machine)
    if budget is None:
        return by_cores
    fitting = next(
        (
            count
            for count in range(by_cores.workers, 0, -1)
            if most_while_training(replace(needs, workers=count)) <= budget
        ),
        0,
    )
    if fitting == by_cores.workers:
        return by_cores
    alone = most_while_training(replace(needs, workers=0))
    one = most_while_training(replace(needs, workers=1)) - alone
    why = trn(
        "{budget} of RAM to plan with, up to {alone} without workers; one for the process takes {one}",
        "{budget} of RAM to plan with, up to {alone} without workers; one for each of {n} processes takes {one}",
        needs.processes,
        budget=gib(budget),
        alone=gib(alone),
        one=gib(one),
    )
    return _Limit(fitting, why)


def _prefetch(machine: Machine, needs: HostNeeds, accumulation: int, few: bool) -> int:
    """Batches for each worker; fewer where even those do not fit. `accumulation`: those of a step in one process."""
    budget = budget_bytes(machine)
    if budget is None or not needs.workers:
        return USUAL_PREFETCH
    wanted = FEW_WORKERS_PREFETCH if few else USUAL_PREFETCH
    batch = batch_bytes(needs.micro_batch, needs.length, needs.target_length)
    room = (MOST_READY_BYTES if needs.pin_memory else MOST_SHARED_BYTES) // batch // needs.workers
    most = most_prefetch(needs.workers, pinned=needs.pin_memory)
    wanted = max(wanted, min(room, most, math.ceil(accumulation / needs.workers)))
    fitting = (count for count in range(wanted, 1, -1) if most_while_training(replace(needs, prefetch=count)) <= budget)
    return next(fitting, 1)


def _prefetch_reason(workers: int, prefetch: int, accumulation: int) -> str:
    if not workers:
        return tr("not used without workers")
    if prefetch < USUAL_PREFETCH:
        return tr("a second batch for each worker would not fit in RAM")
    if prefetch == USUAL_PREFETCH:
        return tr("two batches a worker hide the loading")
    ready = workers * prefetch
    if accumulation <= workers * USUAL_PREFETCH:
        return tr("few workers, as RAM allows no more: each keeps more batches ready")
    count = f"{accumulation:,}"
    if ready >= accumulation:
        return tr("a step takes its {n} micro-batches at once: all are ready when it begins", n=count)
    return tr(
        "a step takes its {n} micro-batches at once: {ready} are ready when it begins", n=count, ready=f"{ready:,}"
    )
