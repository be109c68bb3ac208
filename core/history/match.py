"""Which measurements speak for a workload: the very same work, or the same model in another batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from trainwiz.core.config import RunConfig
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.history.device import device_key
from trainwiz.core.history.measurement import Measurement

MOST_COUNTED_ACCUMULATION = 2
"""The memory of a step is the same from the second micro-batch on."""


def model_digest(model_config: str) -> str:
    """Name of a model in the history: of its config as JSON with sorted keys (Workload.model_config)."""
    return hashlib.sha256(model_config.encode()).hexdigest()[:16]


def data_digest(config: RunConfig) -> str:
    """Name of the rows of a run in the history, by where they come from and how they are read."""
    data = config.data
    known = [source.model_dump() for source in data.sources], data.min_characters, data.max_characters, data.concatenate
    return hashlib.sha256(json.dumps([*known, bool(data.streaming)], default=str).encode()).hexdigest()[:16]


def of_devices(
    measurements: Iterable[Measurement],
    machine: Machine,
    device: str,
    gpus: Sequence[Gpu],
    threads: int | None = None,
    tf32: bool | None = None,
) -> tuple[Measurement, ...]:
    """Those made on the devices that a plan chose; where given, with as many CPU `threads` for each process, or with
    or without `tf32` on a GPU, which are another pace.

    Order is kept.
    """
    key = device_key(machine, device, gpus)
    if key is None:
        return ()
    threads = threads if device == "cpu" else None
    tf32 = tf32 if device == "cuda" else None
    return tuple(
        one
        for one in measurements
        if one.machine == key
        and (threads is None or one.threads in (None, threads))
        and (tf32 is None or one.tf32 in (None, tf32))
    )


def same_model(measurement: Measurement, work: Workload) -> bool:
    """The same model trained in the same way on the same kind of device; batch, lengths and checkpointing may differ."""
    return (
        bool(work.model_config)
        and measurement.machine.startswith(f"{work.device}:")
        and measurement.model == model_digest(work.model_config)
        and measurement.task == work.task
        and measurement.precision == work.precision
        and measurement.attention == work.attention
        and measurement.strategy == work.strategy
        and measurement.offload == work.offload
        and measurement.world_size == work.world_size
        and (measurement.lora_rank > 0) == work.lora
        and measurement.lora_targets == work.lora_targets
    )


def same_work(measurement: Measurement, work: Workload) -> bool:
    """The very same settings, as far as memory goes: more than two accumulated micro-batches count as two."""
    return (
        same_model(measurement, work)
        and measurement.micro_batch == work.micro_batch
        and min(measurement.accumulation, MOST_COUNTED_ACCUMULATION)
        == min(work.accumulation, MOST_COUNTED_ACCUMULATION)
        and measurement.length == work.length
        and measurement.target_length == _target_length(work)
        and measurement.checkpointing == work.checkpointing
        and measurement.optimizer == work.optimizer
        and measurement.lora_rank == work.lora_rank
        and measurement.loss_chunk == work.loss_chunk
        and measurement.padded in (None, work.padded)
        and measurement.lora_dropout in (None, work.lora_dropout)
        and measurement.label_smoothing in (None, work.label_smoothing)
        and measurement.clipping in (None, work.clipping)
    )


def same_step(measurement: Measurement, work: Workload) -> bool:
    """The very same settings for time too: as many micro-batches in a step."""
    return same_work(measurement, work) and measurement.accumulation == work.accumulation


def _target_length(work: Workload) -> int:
    return work.target_length if work.architecture.kind == "encoder-decoder" else 0
