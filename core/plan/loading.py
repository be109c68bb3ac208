"""How rows reach the model, how many workers load them, how long the run is."""

from __future__ import annotations

import math
from dataclasses import replace

from trainwiz.core.data.lengths import held_out_count
from trainwiz.core.estimate.host import (
    LOW_MEMORY_BYTES,
    USUAL_PREFETCH,
    WORTH_SHARE,
    HostNeeds,
    batch_bytes,
    loading_ratio,
    most_prefetch,
    most_while_training,
    workers_for,
)
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, data_digest, same_model
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.engine import cores_shared
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.tasks import data_is_refused
from trainwiz.core.plan.words import counted, gib, percent
from trainwiz.core.plan.workload import host_needs, workload_of

# Loader workers by what was measured: the wait of an earlier run.

Limit = tuple[int, str]
"""How many workers each training process needs or may have, and what says so."""


def measured_workers(plan: Plan, work: Workload | None) -> Limit | None:
    """By the newest measurement that is of this model on these rows and says something of loading; None where none does.

    Micro-batches of any size count: making one and computing one both go with its size.
    """
    data, on_gpu = data_digest(plan.view()), plan.devices.device == "cuda"
    for measured in plan.evidence.measurements if work is not None else ():
        if work is not None and measured.data == data and measured.length == work.length and same_model(measured, work):
            limit = _by_wait(measured, on_gpu=on_gpu)
            if limit is not None:
                return limit
    return None


def _by_wait(measured: Measurement, *, on_gpu: bool) -> Limit | None:
    """By the wait of a run; None where it says nothing of loading."""
    workers, wait_s = measured.workers, measured.data_wait_s
    if workers is None or wait_s is None:
        return None
    values = {"day": measured.day, "share": percent(wait_s / measured.step_s), "workers": workers}
    why = tr("the run of {day} waited {share} of its time for data (workers: {workers})", **values)
    if wait_s > WORTH_SHARE * measured.step_s:
        prefetch = measured.prefetch or USUAL_PREFETCH
        ratio = loading_ratio(measured.step_s, wait_s, workers, measured.accumulation, prefetch)
        return max(workers + 1, workers_for(ratio)), why
    # Where it waited little without workers, how many hide that too is for the cores to say.
    return (workers, why) if workers or not on_gpu else None


# Resolves loader workers and what they prefetch: from the RAM that the training leaves free, and from the cores.

SMALL_ROWS = 50_000
MOST_WORKERS = 8
"""More loader processes for one GPU only cost RAM."""
MOST_READY_BYTES = 256 * 1024**2
"""Of batches that wait in pinned memory for one training process; most are far smaller than a megabyte."""
MOST_SHARED_BYTES = 16 * 1024**2
RESERVE_SHARE = 0.1
"""Of the RAM that is free now: left for the page cache, a desktop, and what the prediction misses."""


def resolve_workers(plan: Plan, work: Workload | None) -> None:
    """Streaming and pinned memory are resolved before. What was measured on these rows wins over a rule."""
    by_rule, measured = _by_cores(plan), measured_workers(plan, work)
    count, why = by_rule if measured is None or low_memory(plan) else measured
    # Each training process keeps a core for itself.
    most = max(int(plan.devices.device == "cuda"), plan.machine.cpu_cores // plan.devices.processes - 1)
    if count > most:
        count, why = most, tr("{why}; the cores allow {n}", why=why, n=most)
    needs = host_needs(plan, plan.view(), work)
    limit = _by_ram(plan, replace(needs, prefetch=USUAL_PREFETCH), (count, why))
    plan.resolve("data.workers", *limit, "detected" if limit == by_rule else "solved")
    count, accumulation = int(plan.get("data.workers")), int(plan.get("batch.gradient_accumulation_steps") or 1)
    prefetch = _prefetch(plan.machine, replace(needs, workers=count), accumulation)
    why = tr("{ready} batches are ready when a step begins", ready=count * prefetch)
    plan.resolve("data.prefetch", prefetch, why if count else tr("not used without data loader workers"))
    why = tr("kept between epochs") if count else tr("no data loader workers")
    plan.resolve("data.persistent_workers", count > 0, why)


def budget_bytes(machine: Machine) -> int | None:
    """RAM that a run may plan with; None where it cannot be read."""
    free = machine.ram_available_bytes
    return int(free * (1 - RESERVE_SHARE)) if free else None


def low_memory(plan: Plan) -> bool:
    """A machine whose RAM loader workers and pinned memory may use up."""
    return plan.devices.device == "cuda" and 0 < plan.machine.ram_total_bytes < LOW_MEMORY_BYTES


def _by_cores(plan: Plan) -> Limit:
    if plan.devices.device != "cuda":
        return 0, tr("the cores are busy with training")
    if low_memory(plan):
        return 0, tr(LOW_MEMORY)
    spare = max(1, plan.machine.cpu_cores // plan.devices.processes - 1)
    if plan.counted is not None and plan.counted.rows < SMALL_ROWS:
        return min(2, spare), tr("enough for {rows} rows", **counted(rows=plan.counted.rows))
    why = tr("{cores}, one reserved per process", cores=cores_shared(plan.machine, plan.devices))
    return min(MOST_WORKERS, spare), why


def _by_ram(plan: Plan, needs: HostNeeds, by_cores: Limit) -> Limit:
    """The most workers that fit beside the training, at most as many as the cores feed."""
    budget = budget_bytes(plan.machine)
    if budget is None:
        return by_cores

    def taken(workers: int) -> int:
        return most_while_training(replace(needs, workers=workers))

    fitting = next((count for count in range(by_cores[0], 0, -1) if taken(count) <= budget), 0)
    why = tr("RAM budget {budget}, of which the training takes up to {alone}", budget=gib(budget), alone=gib(taken(0)))
    return by_cores if fitting == by_cores[0] else (fitting, why)


def _prefetch(machine: Machine, needs: HostNeeds, accumulation: int) -> int:
    """Batches for each worker; fewer where even those do not fit. `accumulation`: those of a step in one process."""
    budget = budget_bytes(machine)
    if budget is None or not needs.workers:
        return USUAL_PREFETCH
    batch = batch_bytes(needs.micro_batch, needs.length, needs.target_length)
    room = (MOST_READY_BYTES if needs.pin_memory else MOST_SHARED_BYTES) // batch // needs.workers
    most = most_prefetch(needs.workers, pinned=needs.pin_memory)
    wanted = max(USUAL_PREFETCH, min(room, most, math.ceil(accumulation / needs.workers)))
    fitting = (count for count in range(wanted, 1, -1) if most_while_training(replace(needs, prefetch=count)) <= budget)
    return next(fitting, 1)


# How rows reach the model, and how long the run is.

LOW_MEMORY = mark("low-memory mode: under 15 GB of RAM")
RAM_SHARE_FOR_ROWS = 0.25
STEPS_WITHOUT_DATA = 1000
FINE_TUNING_EPOCHS = 3.0
"""As the Trainer of transformers has it, and Alpaca (52,000 rows) and most guides since."""


def resolve_loading(plan: Plan) -> None:
    """Streaming, pinned memory, workers, prefetch, held-out rows.

    Workers and prefetch come last: they share the RAM that the rest leaves free.
    """
    data, on_gpu, low = plan.data, plan.devices.device == "cuda", low_memory(plan)
    in_memory = data.bytes_in_memory if data is not None else 0
    streamed = low or in_memory * plan.devices.processes > RAM_SHARE_FOR_ROWS * plan.machine.ram_total_bytes > 0
    words = (
        mark("nothing says that the rows need it"),
        mark("the rows would take over a quarter of the RAM, or RAM is low"),
    )
    plan.resolve("data.streaming", streamed, tr(words[streamed]))
    pinned = on_gpu and not low
    words = mark("only copies to an NVIDIA GPU benefit, with 15 GB of RAM or more"), mark("faster copies to the GPU")
    plan.resolve("data.pin_memory", pinned, tr(words[pinned]))
    resolve_workers(plan, workload_of(plan))
    if data is not None and not plan.get("data.validation_sources"):
        everything = data.texts or data.rows + data.validation_rows
        held = held_out_count(everything, plan.config.data)
        why = tr("1% of {everything} rows, at most 2,000", **counted(everything=everything))
        plan.resolve("data.validation_rows", held, why)


def resolve_length(plan: Plan) -> None:
    """Steps of the run and its passes over the data, where they are known.

    Epochs become steps where the number of rows is exact; an estimate stays an estimate, and the
    run ends after its epochs.
    """
    data, samples, steps = plan.counted, plan.solution.chosen.samples, plan.get("training.max_steps")
    refused = data is None and data_is_refused(plan)
    if steps is None and plan.is_open("training.epochs"):
        if data is None and not refused:
            steps = STEPS_WITHOUT_DATA
            plan.put("training.max_steps", steps, tr("steps and rows are both unknown"))
        else:
            trained = plan.get("model.init") == "pretrained"
            words = mark("one epoch"), mark("the usual number of epochs for fine-tuning")
            plan.put("training.epochs", FINE_TUNING_EPOCHS if trained else 1.0, tr(words[trained]))
    epochs = plan.get("training.epochs")
    if steps is None and data is not None:
        steps = max(1, math.ceil(float(epochs) * math.ceil(data.rows / samples)))
        if data.rows_exact:
            numbers = {"epochs": f"{epochs:g}", **counted(rows=data.rows, samples=samples)}
            reason = tr("epochs: {epochs} over {rows} rows, {samples} per step", **numbers)
            plan.put("training.max_steps", steps, reason)
    plan.steps = None if steps is None else int(steps)
    # Of a run on data that cannot be used only what somebody asked for is known.
    plan.epochs = plan.config.training.epochs if refused else epochs
    if data is not None and data.rows and steps is not None:
        plan.epochs = steps / math.ceil(data.rows / samples)


def resolve_intervals(plan: Plan) -> None:
    """Saving about once an hour and at least ten times, logging every few seconds."""
    steps, step_s = plan.steps, plan.pace.step.likely if plan.pace is not None else None
    tenth = 500 if steps is None else max(1, min(500, math.ceil(steps / 10)))
    hourly = tenth if not step_s else max(1, round(3600 / step_s))
    every = min(tenth, hourly)
    why = tr("about once an hour") if every < tenth else tr("ten times during the run")
    plan.resolve("checkpoint.every_steps", every, why)
    if not plan.get("evaluation.every_epoch"):
        plan.resolve("evaluation.every_steps", int(plan.get("checkpoint.every_steps")), tr("with each checkpoint"))
    log = 10 if step_s is None else max(1, min(50, round(2 / step_s)))
    if steps is not None:
        log = max(1, min(log, steps // 20))
    plan.resolve("logging.every_steps", log, tr("a line every few seconds") if log > 1 else tr("every step"))
