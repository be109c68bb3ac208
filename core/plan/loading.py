"""How rows reach the model, how many workers load them, how long the run is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwiz.core.config import OriginKind
from trainwiz.core.data.lengths import held_out_count
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.host import (
    LOW_MEMORY_BYTES,
    USUAL_PREFETCH,
    WORTH_SHARE,
    HostNeeds,
    batch_bytes,
    late_batches,
    loading_ratio,
    most_prefetch,
    most_while_training,
    workers_for,
)
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, data_digest, same_model
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.engine import cores_shared
from trainwiz.core.plan.words import gib, percent
from trainwiz.core.plan.workload import host_needs

# Loader workers by what was measured: the wait of an earlier run, or a probe's time of making a micro-batch.


@dataclass(frozen=True, slots=True)
class MeasuredWorkers:
    """How many workers each training process needs, and what says so."""

    needed: int
    why: str


def measured_workers(measurements: Sequence[Measurement], work: Workload | None, data: str) -> MeasuredWorkers | None:
    """By the newest of `measurements` that is of this model on these rows (`data`, their digest) and says something of
    loading; None where none does.

    Micro-batches of any size count: making one and computing one both go with its size.
    """
    if work is None:
        return None
    alike = (one for one in measurements if one.data == data and one.length == work.length and same_model(one, work))
    found = (_of_measurement(one, on_gpu=work.device == "cuda") for one in alike)
    return next((one for one in found if one is not None), None)


def _of_measurement(one: Measurement, *, on_gpu: bool) -> MeasuredWorkers | None:
    if one.loading_s is not None:
        return _by_probe(one, one.loading_s, on_gpu=on_gpu)
    if one.workers is None or one.data_wait_s is None:
        return None
    return _by_run(one, one.workers, min(one.data_wait_s, one.step_s), on_gpu=on_gpu)


def _by_probe(one: Measurement, loading_s: float, *, on_gpu: bool) -> MeasuredWorkers:
    computing_s = one.step_s / one.accumulation
    if one.workers == 0:
        # The process that computes also loaded.
        computing_s = max(computing_s - loading_s, 1e-3 * computing_s)
    ratio = loading_s / computing_s
    values = {"load": _span(loading_s), "compute": _span(computing_s), "day": one.day}
    if not on_gpu and ratio <= WORTH_SHARE:
        why = tr("a micro-batch takes {load} to make and {compute} to compute (measured on {day})", **values)
        return MeasuredWorkers(0, why)
    needed = max(1, workers_for(ratio))
    why = trn(
        "a micro-batch takes {load} to make and {compute} to compute (measured on {day}): {n} worker hides it",
        "a micro-batch takes {load} to make and {compute} to compute (measured on {day}): {n} workers hide it",
        needed,
        n=needed,
        **values,
    )
    return MeasuredWorkers(needed, why)


def _by_run(one: Measurement, workers: int, wait_s: float, *, on_gpu: bool) -> MeasuredWorkers | None:
    share = wait_s / one.step_s
    if share > WORTH_SHARE:
        prefetch = one.prefetch or USUAL_PREFETCH
        late = late_batches(workers, one.accumulation, prefetch) if workers else 0
        # Where all could be ready and it waited, so many are too few.
        least = workers if late else workers + 1
        needed = max(least, workers_for(loading_ratio(one.step_s, wait_s, workers, one.accumulation, prefetch)))
        why = tr(
            "the run of {day} waited {share} of its time with {workers}: {needed} would hide the loading",
            day=one.day,
            share=percent(share),
            workers=workers,
            needed=needed,
        )
        return MeasuredWorkers(needed, why)
    if workers == 0 and on_gpu:
        # It waited little; a worker hides that too, and how many is for the cores to say.
        return None
    why = tr("the run of {day} waited {share} of its time with as many", day=one.day, share=percent(share))
    return MeasuredWorkers(workers, why)


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


# Resolves loader workers and what they prefetch: from the RAM that the training leaves free, and from the cores.

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


def resolve_workers(
    draft: Draft,
    machine: Machine,
    devices: Devices,
    data: DataSummary | None,
    rows: int | None,
    work: Workload | None,
    measurements: Sequence[Measurement] = (),
) -> None:
    """`rows` are those of the data, as far as they are known. Streaming and pinned memory are resolved before.

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
    draft.resolve("data.workers", limit.workers, limit.why, origin)
    count, accumulation = int(draft.get("data.workers")), int(draft.get("batch.gradient_accumulation_steps") or 1)
    few = count == limit.workers < by_cores.workers
    prefetch = _prefetch(machine, replace(needs, workers=count), accumulation, few)
    draft.resolve("data.prefetch", prefetch, _prefetch_reason(count, prefetch, accumulation))
    draft.resolve(
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


# Resolves how rows reach the model, and how long the run is.

RAM_SHARE_FOR_ROWS = 0.25
STEPS_WITHOUT_DATA = 1000
FINE_TUNING_EPOCHS = 3.0
"""As the Trainer of transformers has it, and Alpaca (52,000 rows) and most guides since."""


def resolve_loading(
    draft: Draft,
    machine: Machine,
    devices: Devices,
    data: DataSummary | None,
    counted: DataSummary | None,
    work: Workload | None,
    measurements: Sequence[Measurement] = (),
) -> None:
    """Streaming, pinned memory, workers, prefetch, held-out rows. `counted` has rows where `data` is not here.

    Workers and prefetch come last: they share the RAM that the rest leaves free.
    """
    low = 0 < machine.ram_total_bytes < LOW_MEMORY_BYTES and devices.device == "cuda"
    in_memory = data.bytes_in_memory if data is not None else 0
    too_big = in_memory * devices.processes > RAM_SHARE_FOR_ROWS * machine.ram_total_bytes > 0
    if low or too_big:
        why = tr("low-memory mode: under 15 GB of RAM") if low else tr("the rows would take over a quarter of the RAM")
        draft.resolve("data.streaming", True, why)
    else:
        fits = tr("the rows fit in RAM") if data is not None else tr("how many rows there are is not known")
        draft.resolve("data.streaming", False, fits)
    pin = devices.device == "cuda" and not low
    draft.resolve("data.pin_memory", pin, _pin_reason(devices, low))
    resolve_workers(draft, machine, devices, data, counted.rows if counted is not None else None, work, measurements)
    if data is not None and not draft.get("data.validation_sources"):
        everything = data.texts or data.rows + data.validation_rows
        held = held_out_count(everything, draft.config.data)
        draft.resolve(
            "data.validation_rows", held, tr("1 % of {everything} rows, at most 2,000", everything=f"{everything:,}")
        )


def _pin_reason(devices: Devices, low: bool) -> str:
    if devices.device != "cuda":
        return tr("only copies to an NVIDIA GPU gain from it")
    return tr("low-memory mode: under 15 GB of RAM") if low else tr("faster copies to the GPU")


def resolve_length(draft: Draft, samples: int, data: DataSummary | None) -> int | None:
    """Steps of the run, where they are known; `samples` is the effective batch.

    Epochs become steps where the number of rows is exact; an estimate stays an estimate, and the
    run ends after its epochs.
    """
    steps = draft.get("training.max_steps")
    if steps is not None:
        return int(steps)
    if draft.is_open("training.epochs"):
        if data is None:
            draft.put("training.max_steps", STEPS_WITHOUT_DATA, tr("neither steps nor rows are known"))
            return STEPS_WITHOUT_DATA
        if draft.get("model.init") == "pretrained":
            draft.resolve("training.epochs", FINE_TUNING_EPOCHS, tr("the usual length of a fine-tuning"))
        else:
            draft.resolve("training.epochs", 1.0, tr("one pass over the data"))
    if data is None:
        return None
    epochs = float(draft.get("training.epochs"))
    steps = max(1, math.ceil(epochs * math.ceil(data.rows / samples)))
    if data.rows_exact:
        draft.put(
            "training.max_steps",
            steps,
            trn(
                "{epochs} pass over {rows} rows, {samples} a step",
                "{epochs} passes over {rows} rows, {samples} a step",
                1 if epochs == 1 else 2,
                epochs=f"{epochs:g}",
                rows=f"{data.rows:,}",
                samples=f"{samples:,}",
            ),
        )
    return steps


def resolve_intervals(draft: Draft, steps: int | None, step_s: float | None) -> None:
    """Saving about once an hour and at least ten times, logging every few seconds."""
    tenth = 500 if steps is None else max(1, min(500, math.ceil(steps / 10)))
    hourly = tenth if not step_s else max(1, round(3600 / step_s))
    every = min(tenth, hourly)
    draft.resolve(
        "checkpoint.every_steps", every, tr("about once an hour") if every < tenth else tr("ten times over the run")
    )
    if not draft.get("evaluation.every_epoch"):
        saved = int(draft.get("checkpoint.every_steps"))
        draft.resolve("evaluation.every_steps", saved, tr("with each checkpoint"))
    log = 10 if step_s is None else max(1, min(50, round(2 / step_s)))
    if steps is not None:
        log = max(1, min(log, steps // 20))
    draft.resolve("logging.every_steps", log, tr("a line every few seconds") if log > 1 else tr("every step"))
