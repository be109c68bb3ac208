"""What a process holds whatever the batch is: weights, gradients, optimizer states, shared among processes or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.quantized import base_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS

EIGHT_BIT_ADAM = "adamw_bnb_8bit"


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one device, by when they are there."""

    weights: int
    """The process's own, or its share."""
    gradients: int
    """Once all are there, until the step."""
    optimizer: int
    buckets: int = 0
    """Communication buffers that are there from the start."""
    backward_buffers: int = 0
    """Communication buffers of the backward pass alone."""
    gathered: int = 0
    """Whole weights of what is computed now, where each process keeps a share; not there in the step."""
    step_temporary: int = 0
    """Copies that the optimizer makes while it steps."""
    host: int = 0
    """Bytes in host RAM."""
    flat_gradients: bool = False
    """Gradients are one buffer that is there whole from the first one on; otherwise they come one by one."""
    standing_gradients: bool = False
    """That buffer is never given back."""
    half_gradients: int = 0
    """Gradients in half precision that come one by one in the backward pass and are added to that buffer at its end."""


def single_states(work: Workload) -> States:
    """Of a process that keeps all of them itself."""
    formats = work.formats
    trainable = work.trainable_parameters
    trainable_format = formats.adapters if work.lora else formats.weights
    adapters = work.adapter_parameters
    return States(
        weights=base_bytes(work) + adapters * formats.adapters,
        gradients=trainable * trainable_format,
        optimizer=int(trainable * optimizer_bytes(work.optimizer, trainable_format)) + whole_tables(work),
        step_temporary=step_temporary(work, trainable, trainable_format),
    )


def whole_tables(work: Workload) -> int:
    """What 8-bit Adam keeps of embedding tables beyond its two bytes: the Trainer asks bitsandbytes for fp32 states there
    (register_module_override in transformers/trainer.py)."""
    if work.lora or work.optimizer != EIGHT_BIT_ADAM:
        return 0
    tables = max(0, work.architecture.embedding_parameters - work.architecture.frozen_parameters)
    return int(tables * (2 * SINGLE - optimizer_bytes(EIGHT_BIT_ADAM, SINGLE)))


def step_temporary(work: Workload, trainable: int, element: int) -> int:
    """Copies that the optimizer makes while it steps, in bytes: the foreach AdamW makes one of everything, fused none; so
    does SGD, for its weight decay. Adafactor makes two of one parameter after the other, and fp32 ones of its weights
    and gradient where those are not."""
    if work.optimizer == "adafactor":
        return largest_trained(work) * SINGLE * (2 if element == SINGLE else 4)
    return trainable * element if work.optimizer in ("adamw_torch", "sgd") else 0


def largest_trained(work: Workload) -> int:
    """Elements of the largest trained parameter."""
    if not work.lora:
        return largest_matrix(work.architecture)
    sizes = [max(inputs, outputs) for block in work.architecture.blocks for _, inputs, outputs in block.linears]
    table = work.architecture.vocabulary_parameters if work.trains_table else 0
    return max(table, work.lora_rank * max(sizes, default=1))


def largest_matrix(architecture: Architecture) -> int:
    """Elements of the largest single parameter: most often the token table."""
    matrices = [size for block in architecture.blocks for size in block.matrices]
    experts = [block.expert_parameters * 2 // 3 for block in architecture.blocks]
    return max(architecture.vocabulary_parameters, *matrices, *experts)


def optimizer_bytes(optimizer: str, element: int) -> float:
    """States per trainable parameter. 8-bit Adam keeps two bytes and a block scale; Adafactor rows and columns; pages of
    the paged one move to host RAM when the GPU is full."""
    known = {"sgd": 0.0, "adafactor": 0.02, EIGHT_BIT_ADAM: 2.05, "paged_adamw_8bit": 0.1}
    return known.get(optimizer, 2.0 * element)


# States that several processes share: ZeRO as DeepSpeed 0.19 allocates it, and FSDP 2 of torch 2.13.
#
# Sizes follow deepspeed/runtime/zero/stage_1_and_2.py and stage3.py with the settings of
# core/export/deepspeed.py, not the tables of the paper (Rajbhandari et al. 2020): gradients are
# summed in fp32 there, in buffers that the paper does not count.

REUSE_ELEMENTS = 1_000_000_000
"""stage3_max_reuse_distance: weights that are needed again within so many elements stay gathered."""
PREFETCH_ELEMENTS = 50_000_000
"""stage3_prefetch_bucket_size."""
SUB_GROUP_ELEMENTS = 1_000_000_000
"""sub_group_size: ZeRO-3 steps over so many elements at a time."""
_ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})


def _stage_1_bf16(work: Workload) -> States:
    """DeepSpeed's BF16_Optimizer, which it takes for stage 1 in bf16 with gradients in fp32 (engine.py)."""
    trained = work.trainable_parameters
    element = work.formats.weights
    return States(
        (work.architecture.parameters + work.adapter_parameters) * element,
        gradients=trained * SINGLE,
        optimizer=_optimizer(work),
        backward_buffers=min(BUCKET_ELEMENTS, trained) * SINGLE,
        step_temporary=_step(work, trained // work.world_size),
        flat_gradients=True,
        standing_gradients=True,
        half_gradients=trained * element,
    )


def _stages_1_and_2(work: Workload) -> States:
    formats, shards = work.formats, work.world_size
    element, half = formats.weights, formats.weights == HALF
    trained = work.trainable_parameters
    weights = (work.architecture.parameters + work.adapter_parameters) * element
    # One flat fp32 buffer of this process's share (grad_accum_dtype), also where the optimizer is in host RAM:
    # DeepSpeed fills it on the device and copies it over at the end of the window.
    share = trained * SINGLE // shards
    first = work.strategy == "zero1"
    staged = SINGLE if first else element
    buffers = 2 * BUCKET_ELEMENTS * staged + _reduced(work, staged, converted=first and half)
    gradients = share
    if first and work.accumulation > 1:
        # Every process sums all gradients itself until the last micro-batch.
        gradients = trained * SINGLE
        buffers += share if half else 0
    if work.offload in ("optimizer", "all"):
        return States(
            weights,
            gradients if half else 0,
            optimizer=0,
            buckets=largest_trained(work) * element,
            backward_buffers=buffers,
            host=_offloaded(work, share, element),
            flat_gradients=True,
        )
    return States(
        weights,
        gradients,
        optimizer=_optimizer(work),
        backward_buffers=buffers,
        # In fp32 the share is put together again for the step; AdamW makes its copy either way.
        step_temporary=_step(work, trained // shards) + (0 if half else share),
        flat_gradients=True,
    )


def _stage_3(work: Workload) -> States:
    formats, shards, architecture = work.formats, work.world_size, work.architecture
    element = formats.weights
    parameters = architecture.parameters + work.adapter_parameters
    trained = work.trainable_parameters
    weights, share = parameters * element // shards, trained * SINGLE // shards
    unit = max(max(block.parameters for block in architecture.blocks), largest_matrix(architecture))
    gathered = min(parameters, REUSE_ELEMENTS // 2 + PREFETCH_ELEMENTS + unit) * element
    bucket = BUCKET_ELEMENTS * element
    buffers = _reduced(work, element, converted=False) + min(BUCKET_ELEMENTS, trained) * SINGLE // shards
    if work.offload in ("optimizer", "all"):
        host = _offloaded(work, share, element, stage_3=True)
        if work.offload == "all":
            host, weights = host + pinned(weights), 0
        return States(weights, 0, 0, buckets=bucket, backward_buffers=buffers, gathered=gathered, host=host)
    return States(
        weights,
        gradients=share,
        optimizer=_optimizer(work),
        buckets=bucket,
        backward_buffers=buffers,
        gathered=gathered,
        step_temporary=min(share, SUB_GROUP_ELEMENTS * SINGLE)
        + _step(work, min(trained // shards, SUB_GROUP_ELEMENTS)),
        flat_gradients=True,
        standing_gradients=True,
    )


def _reduced(work: Workload, staged: int, *, converted: bool) -> int:
    """What is alive while one bucket is reduced: a copy of it, and one in half precision where it is sent so.

    A gradient larger than a bucket goes by itself, as it is.
    """
    largest = largest_trained(work)
    alone = largest if largest > BUCKET_ELEMENTS else 0
    return max(min(BUCKET_ELEMENTS, work.trainable_parameters), alone) * (staged + (HALF if converted else 0))


def _optimizer(work: Workload) -> int:
    """Moments and master weights of this process's share.

    Weights in fp32 are cloned too: stages 1 and 2 always do, and stage 3 compares a torch.device with a name to see that
    it need not, which is never true.
    """
    return int(work.trainable_parameters * (optimizer_bytes(work.optimizer, SINGLE) + SINGLE)) // work.world_size


def _step(work: Workload, elements: int) -> int:
    """DeepSpeed runs torch's AdamW with `torch_adam`, which is the foreach one."""
    return elements * SINGLE if work.optimizer in _ADAMW else 0


def _offloaded(work: Workload, share: int, element: int, *, stage_3: bool = False) -> int:
    """Host RAM of one process: master weights, gradients, moments, and pinned copies on the way (bytes)."""
    moments = int(share * optimizer_bytes(work.optimizer, SINGLE) / SINGLE)
    half = element == HALF
    if stage_3:
        # Master weights are pageable; the gradients of the step and the ones that micro-batches add up in are pinned.
        return share + moments + 2 * pinned(share)
    passing = pinned(share * element // SINGLE) + pinned(largest_trained(work) * element)
    summed = 0 if half or work.accumulation == 1 else pinned(share)
    return 2 * pinned(share) + moments + passing + summed


def pinned(size: int) -> int:
    """Bytes of page-locked host memory for `size`: torch's caching host allocator rounds up to a power of two."""
    return 1 << max(0, size - 1).bit_length() if size > 0 else 0


def _pinned_one_by_one(work: Workload) -> int:
    """Host bytes for this process's part of every matrix of the model, the experts of a block as one; the rest is small."""
    architecture, element, shards = work.architecture, work.formats.weights, work.world_size
    tables = (1 if architecture.tied else 2) * pinned(architecture.vocabulary_parameters * element // shards)
    return tables + sum(
        (1 if block.shared else block.layers) * pinned(size * element // shards)
        for block in architecture.blocks
        for size in (*block.matrices, max(0, block.linear_parameters - sum(block.matrices)))
    )


def fsdp_states(work: Workload, alone: States) -> States:
    """FSDP 2 as accelerate 1.15 wraps a model: each block, the embedding, and the head with its norm.

    Two blocks are whole at a time, the one that computes and the one that is fetched; the head, and
    with it a tied token table, stays whole through the step. Gradients are reduced after each micro-batch
    (`sync_each_batch` in core/export/training_arguments.py); torch alone would add them up whole. With everything
    offloaded, weights, gradients and optimizer states are in host RAM, the first two page-locked, and AdamW runs there.
    """
    shards, compute = work.world_size, work.formats.compute
    architecture = work.architecture
    block = max(block.parameters for block in architecture.blocks)
    table = architecture.vocabulary_parameters
    unit = block if architecture.tied else max(block, table)
    gathered = (2 * unit + table) * compute
    # The gradients of a block, and the buffers of the one before it that is still being summed.
    buffers = 0 if work.lora else max(3 * block, 2 * table) * compute
    own = (alone.weights // shards, alone.gradients // shards, alone.optimizer // shards)
    if work.offload == "all":
        # Each parameter's part, and that of its gradient, is page-locked by itself.
        locked = _pinned_one_by_one(work)
        host = locked * (1 if work.lora else 2) + own[2] + alone.step_temporary // shards
        return States(0, 0, 0, backward_buffers=buffers, gathered=gathered, host=host)
    return States(*own, backward_buffers=buffers, gathered=gathered, step_temporary=alone.step_temporary // shards)


def states_of(work: Workload) -> States:
    """Weights, gradients and optimizer states of one process, by strategy and offload."""
    if work.strategy == "zero3":
        return _stage_3(work)
    if work.deepspeed:
        bfloat = work.precision in ("bf16", "bf16-true")
        own_optimizer = work.strategy == "zero1" and bfloat and work.offload == "none"
        return _stage_1_bf16(work) if own_optimizer else _stages_1_and_2(work)
    alone = single_states(work)
    if work.strategy == "fsdp":
        return fsdp_states(work, alone)
    if work.strategy == "ddp":
        # accelerate leaves gradient_as_bucket_view off: the buckets are a copy of all gradients.
        return replace(alone, buckets=alone.gradients)
    return alone
