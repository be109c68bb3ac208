"""States that several processes share: ZeRO as DeepSpeed 0.19 allocates it, and FSDP 2 of torch 2.13.

Sizes follow deepspeed/runtime/zero/stage_1_and_2.py and stage3.py with the settings of
core/export/deepspeed.py, not the tables of the paper (Rajbhandari et al. 2020): gradients are
summed in fp32 there, in buffers that the paper does not count.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.state_sizes import States, largest_matrix, largest_trained, optimizer_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS

REUSE_ELEMENTS = 1_000_000_000
"""stage3_max_reuse_distance: weights that are needed again within so many elements stay gathered."""
PREFETCH_ELEMENTS = 50_000_000
"""stage3_prefetch_bucket_size."""
SUB_GROUP_ELEMENTS = 1_000_000_000
"""sub_group_size: ZeRO-3 steps over so many elements at a time."""
_ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})


def zero_states(work: Workload) -> States:
    """ZeRO stage 1, 2 or 3, offloaded or not."""
    if work.strategy == "zero3":
        return _stage_3(work)
    bfloat = work.precision in ("bf16", "bf16-true")
    return (
        _stage_1_bf16(work) if work.strategy == "zero1" and bfloat and work.offload == "none" else _stages_1_and_2(work)
    )


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
        gradients = gradients if half else 0
        return States(
            weights,
            gradients,
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
    share = trained * SINGLE // shards
    unit = max(max(block.parameters for block in architecture.blocks), largest_matrix(architecture))
    gathered = min(parameters, REUSE_ELEMENTS // 2 + PREFETCH_ELEMENTS + unit) * element
    bucket = BUCKET_ELEMENTS * element
    buffers = _reduced(work, element, converted=False) + min(BUCKET_ELEMENTS, trained) * SINGLE // shards
    if work.offload in ("optimizer", "all"):
        whole = work.offload == "all"
        host = _offloaded(work, share, element, stage_3=True)
        if whole:
            host += pinned(parameters * element // shards)
        weights = 0 if whole else parameters * element // shards
        return States(
            weights, gradients=0, optimizer=0, buckets=bucket, backward_buffers=buffers, gathered=gathered, host=host
        )
    return States(
        parameters * element // shards,
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
    bucket = min(BUCKET_ELEMENTS, work.trainable_parameters)
    sent = HALF if converted else 0
    alone = largest if largest > BUCKET_ELEMENTS else 0
    return max(bucket * (staged + sent), alone * (staged + sent))


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
    """Host RAM of one process: master weights, gradients, moments, and pinned copies on the way (bytes).

    `share` is this process's part in fp32.
    """
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
    """Host bytes for this process's part of every matrix of the model; the rest of a model is small."""
    architecture, element, shards = work.architecture, work.formats.weights, work.world_size
    tables = (1 if architecture.tied else 2) * pinned(architecture.vocabulary_parameters * element // shards)
    return tables + sum(
        (1 if block.shared else block.layers) * pinned(size * element // shards)
        for block in architecture.blocks
        for size in _matrices(block)
    )


def _matrices(block: Block) -> Iterator[int]:
    """Elements of each matrix of a block; of experts, which are many or one tensor, all together."""
    named = [inputs * outputs for _, inputs, outputs in block.linears]
    yield from named
    yield max(0, block.linear_parameters - sum(named))


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
    of_block = 0 if work.lora else 3 * block * compute
    of_table = 0 if work.lora else 2 * table * compute
    buffers = max(of_block, of_table)
    own = (alone.weights // shards, alone.gradients // shards, alone.optimizer // shards)
    if work.offload == "all":
        # Each parameter's part, and that of its gradient, is page-locked by itself.
        locked = _pinned_one_by_one(work)
        host = locked * (1 if work.lora else 2) + own[2] + alone.step_temporary // shards
        return States(0, 0, 0, backward_buffers=buffers, gathered=gathered, host=host)
    return States(*own, backward_buffers=buffers, gathered=gathered, step_temporary=alone.step_temporary // shards)
