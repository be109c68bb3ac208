"""The Workload of a plan, and the memory of a resolved one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import checkpoints_kept
from trainwiz.core.data.lengths import joins_texts, longest_generation, packs_rows, padded_length
from trainwiz.core.data.prompts import answer_length, most_prompts, names_prompts
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.architecture import lora_targets
from trainwiz.core.estimate.host import LOG_BYTES, HostNeeds, disk_needs, host_ram
from trainwiz.core.estimate.memory import (
    MemoryEstimate,
    estimate_evaluation,
    estimate_memory,
    unknown_memory,
    worse_verdict,
)
from trainwiz.core.estimate.states import loaded_bytes, optimizer_bytes, states_of
from trainwiz.core.estimate.workload import SINGLE, Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.result import MemoryPlan, Plan
from trainwiz.core.plan.rows import (
    arrangement_of,
    length_quantiles,
    lengths_of,
    moments_of,
    multiple_of,
    pairs_of,
    step_of,
)

# The Workload of a plan: what one process computes, from what is resolved so far.


def workload_of(plan: Plan, *, evaluates: bool = False) -> Workload | None:
    """None without a known architecture. With `evaluates`, what evaluation and generation need is in it."""
    architecture, data, devices, get = plan.architecture, plan.data, plan.devices, plan.get
    if architecture is None:
        return None
    view = plan.view()
    length = int(get("batch.sequence_length"))
    target = int(get("batch.target_length") or length)
    if data is not None:
        multiple = multiple_of(plan)
        length = padded_length(min(length, _longest(data, data.lengths) or length), multiple, length)
        target = padded_length(min(target, _longest(data, data.target_lengths) or target), multiple, target)
    rank = int(get("peft.rank")) if get("peft.method") == "lora" else 0
    if plan.model_config is None:
        # As training builds it, overrides included.
        plan.model_config = model_json(get("model.architecture"), get("model.architecture_overrides"))
    context_bytes = get("planning.context_bytes")
    return Workload(
        architecture=architecture,
        micro_batch=get("batch.micro_batch_size") or 1,
        length=length,
        target_length=target,
        accumulation=get("batch.gradient_accumulation_steps") or 1,
        world_size=devices.world_size,
        precision=get("engine.precision"),
        base_precision=(get("engine.base_precision") or "none") if rank else "none",
        attention=get("engine.attention"),
        checkpointing=bool(get("engine.checkpointing")),
        optimizer=get("engine.optimizer"),
        strategy=get("engine.strategy"),
        offload=get("engine.offload"),
        lora_rank=rank,
        lora_targets=lora_targets(architecture, get("peft.targets")) if rank else (),
        lora_dropout=bool(rank and get("peft.dropout")),
        dora=bool(rank and get("peft.dora")),
        modules_to_save=tuple(get("peft.modules_to_save")) if rank else (),
        loss_chunk=get("training.loss_chunk"),
        device=devices.device,
        eval_micro_batch=(get("batch.eval_micro_batch_size") or 0) if evaluates else 0,
        beams=int(get("evaluation.beams")),
        generation_length=longest_generation(view) if evaluates and get("evaluation.generate") else 0,
        task=get("task"),
        model_config=plan.model_config,
        label_smoothing=bool(get("training.label_smoothing")),
        clipping=bool(get("training.max_grad_norm")),
        capability=(devices.gpus[0].compute_capability or "") if devices.gpus else "",
        padded=not joins_texts(view),
        packed=packs_rows(view),
        row_lengths=length_quantiles(data.lengths) if data is not None else (),
        longest_of={"arranged": prod(step_of(plan)), "grouped": 1}.get(arrangement_of(plan), 0),
        context_bytes=context_bytes,
        context_source=tr("as stated") if context_bytes is not None else "",
    )


def model_json(architecture: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> str:
    """A model's config as a workload and a trace's request hold it."""
    return json.dumps({**(architecture or {}), **overrides}, sort_keys=True, default=str)


MOST_TOKENS_OF_AN_ESTIMATE = 4
"""A token has at least one byte, and estimates take at most four bytes for one (core/data/lengths.py)."""


def _longest(data: DataSummary, rows: tuple[int, ...]) -> int | None:
    """No batch is longer than the longest row, where every row was looked at; None where some were not."""
    # Asked last: to find what is known of many rows, all of them are hashed.
    some = not data.rows_exact or data.rows + data.validation_rows > len(rows)
    lengths = None if some else lengths_of(rows)
    if lengths is None:
        return None
    return max(1, lengths.longest * (1 if data.length_unit == "tokens" else MOST_TOKENS_OF_AN_ESTIMATE))


def typical(plan: Plan, work: Workload) -> Workload:
    """`work` at the lengths of a usual batch, for its time: each micro-batch is padded to its own longest row, and
    that to a multiple.

    In expectation, for a run takes the sum over its micro-batches. A process that has a shorter micro-batch waits for the
    others: at each micro-batch where they hold parts of the model, else at the end of the step. Without lengths, the full ones. Joined texts are
    of one length.
    """
    if plan.data is None or not plan.data.lengths:
        return work
    arrangement = arrangement_of(plan) if work.padded else "drawn"
    moments = moments_of(work, plan.data, arrangement, multiple_of(plan))
    if moments is None:
        return work
    target = work.target_length if pairs_of(plan.data) is None else max(1, round(moments[2]))
    return replace(work, length=max(1, round(moments[1])), target_length=target)


def answering(config: RunConfig, work: Workload) -> Workload | None:
    """`work` while it answers its prompts, all at once in one process; None where it answers none or writes nothing."""
    prompts, length = most_prompts(config), answer_length(config)
    if not prompts or not length or (work.eval_micro_batch == 0 and not names_prompts(config)):
        return None
    return replace(work, eval_micro_batch=prompts, generation_length=length, beams=1, world_size=1)


# The memory of a resolved run as a plan shows it: the device, host RAM and disk.


OF_EACH_PROCESS = (
    "allocated_bytes", "reserved_bytes", "device_used_bytes", "low_bytes", "high_bytes", "needed_bytes",
)  # fmt: skip


def plan_memory(plan: Plan) -> None:
    """The peak on the device while training and while evaluating, in host RAM and on disk."""
    machine, devices, config, work = plan.machine, plan.devices, plan.config, plan.work
    estimate = estimate_memory(work, plan.evidence) if work is not None else unknown_memory()
    evaluation = _evaluation(plan, work) if work is not None else None
    processes, share = devices.sharing, devices.share_bytes
    if devices.device == "cuda":
        estimate = estimate.on_card(share)
        evaluation = evaluation.on_card(share) if evaluation is not None else None
    host = host_ram(
        host_needs(plan, config, work, (estimate.low_bytes, estimate.device_used_bytes, estimate.high_bytes))
    )
    disk = 0
    if work is not None:
        on_disk = plan.data.bytes_streamed if config.data.streaming and plan.data is not None else 0
        needs = disk_needs(
            work,
            checkpoints_kept(config),
            merged=config.peft.merge,
            own_base=config.model.init != "pretrained",
            rows_bytes=on_disk,
        )
        disk = needs.total_bytes if config.mode.saves else on_disk + LOG_BYTES
    verdict = estimate.verdict(share)
    if evaluation is not None:
        verdict = worse_verdict(verdict, evaluation.verdict(share))
    plan.estimate, plan.evaluation = estimate, evaluation
    # One budget where the GPU's memory is the machine's RAM.
    on_shared = estimate.device_used_bytes * processes if any(gpu.unified for gpu in devices.gpus) else 0
    plan.memory = MemoryPlan(
        tier=estimate.tier,
        **{name: getattr(estimate, name) * processes for name in OF_EACH_PROCESS},
        breakdown={kind: size * processes for kind, size in estimate.breakdown.items()},
        peak_moment=estimate.peak_moment,
        capacity_bytes=devices.capacity_bytes,
        verdict=verdict,
        host_ram_bytes=host.total_bytes,
        host_ram_capacity_bytes=max(0, machine.ram_available_bytes - on_shared) or None,
        host_ram_parts=host.parts,
        disk_bytes=disk,
        disk_capacity_bytes=machine.disk_free_bytes,
        device=devices.label,
        evaluation_bytes=None
        if evaluation is None
        else processes * (evaluation.device_used_bytes if devices.device == "cpu" else evaluation.needed_bytes),
        basis=estimate.basis,
        waiting=plan.evidence.waiting,
        host_ram_low_bytes=host.low_bytes,
        host_ram_high_bytes=host.high_bytes,
        needed_high_bytes=estimate.safe_bytes * processes,
    )


def _evaluation(plan: Plan, work: Workload) -> MemoryEstimate | None:
    """Of evaluating held-out rows, or of answering prompts where that takes more."""
    estimate, answers = estimate_evaluation(work, plan.evidence), answering(plan.config, work)
    # A process of several holds its share of the weights while it answers.
    of_answers = None if answers is None else replace(answers, world_size=work.world_size)
    others = None if of_answers is None else estimate_evaluation(of_answers, plan.evidence)
    found = [one for one in (estimate, others) if one is not None]
    return max(found, key=lambda one: one.allocated_bytes, default=None)


def host_needs(
    plan: Plan, config: RunConfig, work: Workload | None, device_bytes: tuple[int, int, int] = (0, 0, 0)
) -> HostNeeds:
    """What decides the host RAM of `config`, which may be a view of the plan. `device_bytes` (at least, likely, at most) is of one
    process on a CPU."""
    section, batch, devices, data = config.data, config.batch, plan.devices, plan.data
    weights_bytes = offloaded_bytes = saved_bytes = 0
    if work is not None:
        parameters = work.architecture.parameters
        # A frozen base is read in the format that it is kept in.
        weights_bytes = (work.formats.weights if work.lora else 4) * parameters
        if work.quantized and config.model.init == "pretrained":
            weights_bytes = loaded_bytes(work)
        offloaded_bytes = states_of(work).host
        # What the first process holds to write it: the weights; with FSDP, whose checkpoints are whole, the optimizer's
        # states of all processes as well, after them.
        saved_bytes = 4 * (work.adapter_parameters if work.lora else parameters)
        if work.strategy == "fsdp":
            states_bytes = int(work.trainable_parameters * optimizer_bytes(work.optimizer, SINGLE))
            saved_bytes = max(saved_bytes, states_bytes)
        if work.quantized and config.peft.merge:
            # The base is read back, for adapters are added to its own numbers.
            saved_bytes = max(saved_bytes, parameters * work.formats.weights)
    return HostNeeds(
        processes=devices.processes,
        on_gpu=devices.device != "cpu",
        workers=section.workers or 0,
        prefetch=section.prefetch or 1,
        pin_memory=bool(section.pin_memory),
        micro_batch=batch.micro_batch_size or 1,
        length=batch.sequence_length,
        target_length=batch.target_length or 0,
        data_bytes=0 if section.streaming or data is None else data.bytes_in_memory,
        weights_bytes=weights_bytes,
        offloaded_bytes=offloaded_bytes,
        cuda=devices.device == "cuda",
        device_bytes=device_bytes if devices.device == "cpu" else (0, 0, 0),
        saved_bytes=saved_bytes,
        rows=plan.counted.rows if plan.counted is not None else 0,
    )
