"""The Workload of a draft, and the memory of a resolved run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import joins_texts, longest_generation, packs_rows, padded_length
from trainwiz.core.data.streamed import WINDOW_BYTES
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.architecture import Architecture, lora_targets
from trainwiz.core.estimate.host import LOG_BYTES, HostNeeds, disk_needs, host_ram
from trainwiz.core.estimate.memory import (
    MemoryEstimate,
    estimate_evaluation,
    estimate_memory,
    unknown_memory,
    worse_verdict,
)
from trainwiz.core.estimate.states import optimizer_bytes, states_of
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import SINGLE, Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.result import MemoryPlan
from trainwiz.core.plan.rows import Arrangement, lengths_of, multiple_of, usual_lengths

# The Workload of a draft: what one process computes, from what is resolved so far.


def workload_of(
    draft: Draft,
    devices: Devices,
    architecture: Architecture | None,
    data: DataSummary | None,
    *,
    evaluates: bool = False,
) -> Workload | None:
    """None without a known architecture. With `evaluates`, what evaluation and generation need is in it."""
    if architecture is None:
        return None
    get = draft.get
    length = int(get("batch.sequence_length"))
    target = int(get("batch.target_length") or length)
    if data is not None:
        multiple = multiple_of(get)
        length = padded_length(min(length, _longest(data, data.lengths) or length), multiple, length)
        target = padded_length(min(target, _longest(data, data.target_lengths) or target), multiple, target)
    rank = int(get("peft.rank")) if get("peft.method") == "lora" else 0
    generates = evaluates and bool(get("evaluation.generate"))
    return Workload(
        architecture=architecture,
        micro_batch=get("batch.micro_batch_size") or 1,
        length=length,
        target_length=target,
        accumulation=get("batch.gradient_accumulation_steps") or 1,
        world_size=devices.world_size,
        precision=get("engine.precision"),
        attention=get("engine.attention"),
        checkpointing=bool(get("engine.checkpointing")),
        optimizer=get("engine.optimizer"),
        strategy=get("engine.strategy"),
        offload=get("engine.offload"),
        lora_rank=rank,
        lora_targets=lora_targets(architecture, get("peft.targets")) if rank else (),
        lora_dropout=bool(rank and get("peft.dropout")),
        loss_chunk=get("training.loss_chunk"),
        device=devices.device,
        eval_micro_batch=(get("batch.eval_micro_batch_size") or 0) if evaluates else 0,
        beams=int(get("evaluation.beams")),
        generation_length=longest_generation(draft.view()) if generates else 0,
        task=get("task"),
        model_config=_model_config(draft),
        label_smoothing=bool(get("training.label_smoothing")),
        clipping=bool(get("training.max_grad_norm")),
        capability=(devices.gpus[0].compute_capability or "") if devices.gpus else "",
        padded=not joins_texts(draft.view()),
        packed=packs_rows(draft.view()),
        context_bytes=get("planning.context_bytes"),
        context_source=tr("as stated") if get("planning.context_bytes") is not None else "",
    )


def _model_config(draft: Draft) -> str:
    """The config of the model as training builds it, overrides included."""
    if draft.model_config is None:
        draft.model_config = model_json(draft.get("model.architecture"), draft.get("model.architecture_overrides"))
    return draft.model_config


def model_json(architecture: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> str:
    """A model's config as a workload and a trace's request hold it."""
    return json.dumps({**(architecture or {}), **overrides}, sort_keys=True, default=str)


MOST_TOKENS_OF_AN_ESTIMATE = 4
"""A token has at least one byte, and estimates take at most four bytes for one (core/data/lengths.py)."""


def _longest(data: DataSummary, rows: tuple[int, ...]) -> int | None:
    """No batch is longer than the longest row, where every row was looked at; None where some were not."""
    if not data.rows_exact or data.rows + data.validation_rows > len(rows):
        return None
    lengths = lengths_of(rows)
    if lengths is None:
        return None
    return max(1, lengths.longest * (1 if data.length_unit == "tokens" else MOST_TOKENS_OF_AN_ESTIMATE))


def typical(
    work: Workload, data: DataSummary | None, arrangement: Arrangement = "drawn", multiple: int = 1
) -> Workload:
    """`work` at the lengths of a usual batch, for its time: each micro-batch is padded to its own longest row, and
    that to a `multiple`.

    In expectation, for a run takes the sum over its micro-batches. Without lengths, the full ones. Joined texts are
    of one length.
    """
    if data is None or not data.lengths:
        return work
    source, target = usual_lengths(work, data, arrangement if work.padded else "drawn", multiple)
    return replace(work, length=source, target_length=target)


# The memory of a resolved run as a plan shows it: the device, host RAM and disk.


def plan_memory(
    machine: Machine,
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    data: DataSummary | None,
    evidence: Evidence = NO_EVIDENCE,
    rows: int = 0,
) -> tuple[MemoryEstimate, MemoryEstimate | None, MemoryPlan]:
    """(training, evaluation, the plan): the peak on the device, in host RAM and on disk. `rows` are those of the data."""
    estimate = estimate_memory(work, evidence) if work is not None else unknown_memory()
    evaluation = estimate_evaluation(work, evidence) if work is not None else None
    on_cpu = devices.device == "cpu"
    processes = devices.processes if on_cpu else 1
    share = None if devices.capacity_bytes is None else devices.capacity_bytes // processes
    if devices.device == "cuda":
        estimate = estimate.on_card(share)
        evaluation = evaluation.on_card(share) if evaluation is not None else None
    mine = estimate.low_bytes, estimate.device_used_bytes, estimate.high_bytes
    host = host_ram(host_needs(devices, config, work, data, mine, rows))
    kept = config.checkpoint.keep + (1 if config.checkpoint.keep_best else 0)
    disk = 0
    if work is not None:
        on_disk = data.bytes_streamed if config.data.streaming and data is not None else 0
        scratch = config.model.init != "pretrained"
        needs = disk_needs(work, kept, merged=config.peft.merge, own_base=scratch, rows_bytes=on_disk)
        disk = needs.total_bytes if config.mode.saves else on_disk + LOG_BYTES
    verdict = estimate.verdict(share)
    if evaluation is not None:
        verdict = worse_verdict(verdict, evaluation.verdict(share))
    plan = MemoryPlan(
        tier=estimate.tier,
        allocated_bytes=estimate.allocated_bytes * processes,
        reserved_bytes=estimate.reserved_bytes * processes,
        device_used_bytes=estimate.device_used_bytes * processes,
        low_bytes=estimate.low_bytes * processes,
        high_bytes=estimate.high_bytes * processes,
        breakdown={kind: size * processes for kind, size in estimate.breakdown.items()},
        peak_moment=estimate.peak_moment,
        capacity_bytes=devices.capacity_bytes,
        verdict=verdict,
        host_ram_bytes=host.total_bytes,
        host_ram_capacity_bytes=machine.ram_available_bytes or None,
        host_ram_parts=host.parts,
        disk_bytes=disk,
        disk_capacity_bytes=machine.disk_free_bytes,
        device=devices.label,
        evaluation_bytes=evaluation.device_used_bytes * processes if evaluation is not None else None,
        basis=estimate.basis,
        waiting=evidence.waiting,
        host_ram_low_bytes=host.low_bytes,
        host_ram_high_bytes=host.high_bytes,
        needed_bytes=estimate.needed_bytes * processes,
        needed_high_bytes=estimate.safe_bytes * processes,
    )
    return estimate, evaluation, plan


def host_needs(
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    data: DataSummary | None,
    device_bytes: tuple[int, int, int],
    rows: int = 0,
) -> HostNeeds:
    """What decides the host RAM of `config`, which may be a draft's view. `device_bytes` (at least, likely, at most) is of one process
    on a CPU."""
    section, batch = config.data, config.batch
    # A frozen base is read in the format that it is kept in.
    element = work.formats.weights if work is not None and work.lora else 4
    parameters = work.architecture.parameters if work is not None else 0
    saved = work.adapter_parameters if work is not None and work.lora else parameters
    bytes_in_memory = data.bytes_in_memory if data is not None else 0
    return HostNeeds(
        processes=devices.processes,
        on_gpu=devices.device != "cpu",
        workers=section.workers or 0,
        prefetch=section.prefetch or 1,
        pin_memory=bool(section.pin_memory),
        micro_batch=batch.micro_batch_size or 1,
        length=batch.sequence_length,
        target_length=batch.target_length or 0,
        data_bytes=0 if section.streaming else bytes_in_memory,
        window_bytes=_window_bytes(data) if section.streaming else 0,
        weights_bytes=element * parameters,
        offloaded_bytes=states_of(work).host if work is not None else 0,
        cuda=devices.device == "cuda",
        device_bytes=device_bytes if devices.device == "cpu" else (0, 0, 0),
        saved_bytes=_saved_bytes(work, 4 * saved),
        rows=rows,
    )


def _window_bytes(data: DataSummary | None) -> int:
    """A whole window where the rows are not known: who streams has more than one."""
    return WINDOW_BYTES if data is None else min(data.bytes_in_memory, WINDOW_BYTES)


def _saved_bytes(work: Workload | None, weights_bytes: int) -> int:
    """What the first process holds in host RAM to write it: the weights; with FSDP, whose checkpoints are whole, the
    optimizer's states of all processes as well, after them."""
    if work is None or work.strategy != "fsdp":
        return weights_bytes
    return max(weights_bytes, int(work.trainable_parameters * optimizer_bytes(work.optimizer, SINGLE)))
