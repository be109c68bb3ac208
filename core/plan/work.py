"""The Workload of a draft: what one process computes, from what is settled so far."""

from __future__ import annotations

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.architecture import Architecture, default_lora_targets
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft


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
    # When every row was measured, no batch is longer than the longest of them.
    if data is not None and data.rows_exact and data.length_unit == "tokens":
        if data.lengths and data.rows + data.validation_rows <= len(data.lengths):
            length = max(1, min(length, max(data.lengths)))
        if data.target_lengths and data.rows + data.validation_rows <= len(data.target_lengths):
            target = max(1, min(target, max(data.target_lengths)))
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
        lora_targets=(tuple(get("peft.targets")) or default_lora_targets(architecture)) if rank else (),
        lora_dropout=bool(rank and get("peft.dropout")),
        loss_chunk=get("training.loss_chunk"),
        device=devices.device,
        eval_micro_batch=(get("batch.eval_micro_batch_size") or 0) if evaluates else 0,
        beams=int(get("evaluation.beams")),
        generation_length=int(get("evaluation.generation_length") or target) if generates else 0,
    )
