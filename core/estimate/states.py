"""What a process holds whatever the batch is: weights, gradients, optimizer states."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS

OFFLOADED_BYTES_PER_PARAMETER = 21
"""Host RAM of one offloaded parameter. DeepSpeed holds an fp32 weight, its gradient, two Adam moments (16 bytes) and the
pinned half-precision gradient that micro-batches add up in (2), and rounds pinned blocks up (about a sixth)."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one device. `gradients` are there from the end of the backward pass to the step."""

    weights: int
    gradients: int
    optimizer: int
    buckets: int = 0
    """Communication buffers, there from the start."""
    step_temporary: int = 0
    """Copies that the optimizer makes while it steps."""
    host: int = 0
    """Bytes in host RAM."""


def states_of(work: Workload) -> States:
    """Weights, gradients and optimizer states of one process, by strategy and offload."""
    parameters, trainable = work.architecture.parameters, work.trainable_parameters
    adapters = work.adapter_parameters
    if work.deepspeed:
        return _zero_states(work, parameters + adapters, trainable)
    formats = work.formats
    trainable_format = formats.adapters if work.lora else formats.weights
    weights = parameters * formats.weights + adapters * formats.adapters
    gradients = trainable * trainable_format
    optimizer = int(trainable * _optimizer_bytes(work.optimizer, trainable_format))
    temporary = int(trainable * _step_bytes(work.optimizer, trainable_format))
    if work.strategy == "fsdp":
        shards = work.world_size
        largest = max(block.parameters for block in work.architecture.blocks)
        return States(
            weights=weights // shards + 2 * largest * formats.compute,
            gradients=gradients // shards,
            optimizer=optimizer // shards,
            buckets=largest * formats.compute,
            step_temporary=temporary // shards,
        )
    buckets = gradients if work.strategy == "ddp" else 0
    return States(weights, gradients, optimizer, buckets=buckets, step_temporary=temporary)


def _zero_states(work: Workload, parameters: int, trainable: int) -> States:
    """DeepSpeed: half-precision weights, fp32 master weights and moments, sharded from stage 1 on (Rajbhandari 2020)."""
    formats, shards = work.formats, work.world_size
    stage = int(work.strategy.removeprefix("zero"))
    moments = _optimizer_bytes(work.optimizer, SINGLE)
    master = SINGLE if formats.weights == HALF else 0
    # Two buckets, because communication overlaps; they hold fp32 where gradients are summed in fp32.
    bucket = 2 * min(trainable, BUCKET_ELEMENTS) * SINGLE
    weights = parameters * formats.weights // (shards if stage == 3 else 1)
    if stage == 3:
        weights += 2 * max(block.parameters for block in work.architecture.blocks) * formats.weights
    if work.offload in ("optimizer", "all"):
        # Gradients leave for host RAM bucket by bucket; the fp32 copies live there too.
        host = trainable * OFFLOADED_BYTES_PER_PARAMETER // shards
        if work.offload == "all" and stage == 3:
            host += parameters * formats.weights // shards
            weights = 2 * max(block.parameters for block in work.architecture.blocks) * formats.weights
        return States(weights, gradients=0, optimizer=0, buckets=bucket, host=host)
    gradients = trainable * formats.weights // (shards if stage >= 2 else 1)
    optimizer = int(trainable * (moments + 2 * master)) // shards
    return States(weights, gradients, optimizer, buckets=bucket if stage >= 2 else 0)


def _optimizer_bytes(optimizer: str, element: int) -> float:
    """States per trainable parameter. 8-bit Adam keeps two bytes and a block scale; Adafactor rows and columns."""
    match optimizer:
        case "sgd":
            return 0.0
        case "adafactor":
            return 0.02
        case "adamw_bnb_8bit":
            return 2.05
        case "paged_adamw_8bit":
            return 0.1  # pages move to host RAM when the GPU is full
        case _:
            return 2.0 * element


def _step_bytes(optimizer: str, element: int) -> float:
    """Temporaries of the step per trainable parameter: the foreach AdamW makes one whole copy, fused none."""
    return float(element) if optimizer == "adamw_torch" else 0.0
