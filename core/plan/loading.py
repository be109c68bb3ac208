"""Settles how rows reach the model, and how long the run is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainwiz.core.data.split import held_out_count
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.workers import settle_workers

RAM_SHARE_FOR_ROWS = 0.25
STEPS_WITHOUT_DATA = 1000
FINE_TUNING_EPOCHS = 3.0
"""As the Trainer of transformers has it, and Alpaca (52,000 rows) and most guides since."""


def settle_loading(
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
        draft.settle("data.streaming", True, why)
    else:
        fits = tr("the rows fit in RAM") if data is not None else tr("how many rows there are is not known")
        draft.settle("data.streaming", False, fits)
    pin = devices.device == "cuda" and not low
    draft.settle("data.pin_memory", pin, _pin_reason(devices, low))
    settle_workers(draft, machine, devices, data, counted.rows if counted is not None else None, work, measurements)
    if data is not None and not draft.get("data.validation_sources"):
        everything = data.texts or data.rows + data.validation_rows
        held = held_out_count(everything, draft.config.data)
        draft.settle(
            "data.validation_rows", held, tr("1 % of {everything} rows, at most 2,000", everything=f"{everything:,}")
        )


def _pin_reason(devices: Devices, low: bool) -> str:
    if devices.device != "cuda":
        return tr("only copies to an NVIDIA GPU gain from it")
    return tr("low-memory mode: under 15 GB of RAM") if low else tr("faster copies to the GPU")


def settle_length(draft: Draft, samples: int, data: DataSummary | None) -> int | None:
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
            draft.settle("training.epochs", FINE_TUNING_EPOCHS, tr("the usual length of a fine-tuning"))
        else:
            draft.settle("training.epochs", 1.0, tr("one pass over the data"))
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


def settle_intervals(draft: Draft, steps: int | None, step_s: float | None) -> None:
    """Saving about once an hour and at least ten times, logging every few seconds."""
    tenth = 500 if steps is None else max(1, min(500, math.ceil(steps / 10)))
    hourly = tenth if not step_s else max(1, round(3600 / step_s))
    every = min(tenth, hourly)
    draft.settle(
        "checkpoint.every_steps", every, tr("about once an hour") if every < tenth else tr("ten times over the run")
    )
    if not draft.get("evaluation.every_epoch"):
        saved = int(draft.get("checkpoint.every_steps"))
        draft.settle("evaluation.every_steps", saved, tr("with each checkpoint"))
    log = 10 if step_s is None else max(1, min(50, round(2 / step_s)))
    if steps is not None:
        log = max(1, min(log, steps // 20))
    draft.settle("logging.every_steps", log, tr("a line every few seconds") if log > 1 else tr("every step"))
