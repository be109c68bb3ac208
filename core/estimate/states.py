"""What a process holds whatever the batch is: weights, gradients, optimizer states, shared among processes or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS

# What the frozen base of adapters takes in 4 or 8 bits: its bytes, and what is made whole while a step computes.


BLOCK = 64
"""Weights that share a scale in NF4."""
SECOND_BLOCK = 256
"""Scales that share a scale of their own: double quantisation."""
TABLES = 16 * SINGLE + 256 * SINGLE + SINGLE
"""Beside each matrix: the values of NF4, those of the 8-bit scales, and their mean."""
KEPT_WHOLE = {"t5": ("wo",), "mt5": ("wo",), "umt5": ("wo",)}
"""Linear layers that transformers never packs, by model type (`_keep_in_fp32_modules`)."""


def packed_bytes(inputs: int, outputs: int, kind: str) -> int:
    """Of one linear layer's weights with all that is needed to read them.

    NF4: half a byte a weight, a scale in 8 bits for 64 of them, an fp32 scale for 256 of those. int8: a byte a
    weight, and an fp32 scale for each output.
    """
    weights = inputs * outputs
    if kind == "int8":
        return weights + outputs * SINGLE
    scales = -(-weights // BLOCK)
    return (weights + 1) // 2 + scales + -(-scales // SECOND_BLOCK) * SINGLE + TABLES


def packed_linears(work: Workload, block: Block) -> list[tuple[str, int, int]]:
    """(name, inputs, outputs) of a block's layers that are packed. Experts are no linear layers in transformers 5, and
    stay as they are."""
    whole = KEPT_WHOLE.get(work.architecture.model_type, ())
    return [linear for linear in block.linears if linear[0] not in whole] if work.quantized else []


def base_bytes(work: Workload) -> int:
    """Weights of the base: packed ones, norms in fp32 under autocast, the rest (embeddings, head, biases) as it is."""
    architecture, formats = work.architecture, work.formats
    total = architecture.parameters * formats.weights
    if not work.quantized:
        return total
    norms = architecture.norm_parameters
    for block in architecture.blocks:
        layers, linears = 1 if block.shared else block.layers, packed_linears(work, block)
        packed = sum(packed_bytes(inputs, outputs, work.base_precision) for _, inputs, outputs in linears)
        total += layers * (packed - formats.weights * sum(inputs * outputs for _, inputs, outputs in linears))
        norms += layers * block.norm_parameters
    return total + norms * (formats.norm - formats.weights)


def whole_bytes(work: Workload) -> int:
    """The largest packed matrix made whole for its product, forward and backward, with its scales in fp32 twice; int8
    multiplies as it is and is made whole in the backward pass. DoRA adds the adapter's product to it, both as they are
    fed, after multiplying the unit matrix of the inputs in fp32 (peft, tuners/lora/dora.py)."""
    if work.dora:
        wide = work.formats.compute + 3 * work.formats.products
        return max(
            (
                inputs * outputs * wide + inputs**2 * SINGLE
                for block in work.architecture.blocks
                for _, inputs, outputs in work.adapted(block)
            ),
            default=0,
        )
    sizes = [
        inputs * outputs
        for block in work.architecture.blocks
        for _, inputs, outputs in packed_linears(work, block)
    ]  # fmt: skip
    scales = 2 * SINGLE / BLOCK if work.base_precision == "nf4" else 0
    return int(max(sizes, default=0) * (work.formats.compute + scales))


def kept_inputs(work: Workload, block: Block) -> int:
    """Per token: the inputs of a block's products that LLM.int8() keeps for its backward pass. They hang on the graph
    and not on its saved tensors, so that checkpointing does not drop them (MatMul8bitLt, `ctx.tensors`)."""
    if work.base_precision != "int8" or not work.quantized:
        return 0
    wide, norms = work.formats.products, 1 if block.parallel else 2
    attended = block.attention_width * work.formats.compute if work.checkpointing else 0
    return norms * block.hidden * wide + attended + block.ffn * wide


READ, WRITTEN = 0.5 + 1 / BLOCK, 2 * SINGLE / BLOCK
"""Bytes a weight of NF4 beside the whole copy: what is packed, and the scales in fp32."""
HANDED_OUT = 26
"""Bytes a value that a packed layer hands out in one pass: cast to fp32 and cloned by peft (tuners/lora/bnb.py), summed
with the adapter's. Counted in traces."""
DORA = 40
"""Bytes a weight and pass of an adapted matrix that DoRA makes whole, sums and takes the norm of."""
DORA_HANDED_OUT = 47
"""Likewise for each value that such a matrix hands out: what base and adapter give is scaled in fp32. Counted in traces."""


def moved_more(work: Workload, block: Block, tokens: int) -> float:
    """Bytes that one pass over a block moves beyond those of a 16-bit base."""
    linears = packed_linears(work, block)
    weights = sum(inputs * outputs for _, inputs, outputs in linears)
    each = READ + WRITTEN + work.formats.compute if work.base_precision == "nf4" else 1.0
    dora = sum(
        DORA * inputs * outputs + DORA_HANDED_OUT * tokens * outputs
        for _, inputs, outputs in work.adapted(block)
        if work.dora
    )
    return dora + weights * each + tokens * HANDED_OUT * sum(outputs for _, _, outputs in linears)


def loaded_bytes(work: Workload) -> int:
    """Host RAM while a pretrained base is quantised at loading: transformers reads one tensor after the other
    (core_model_loading.py, `has_on_the_fly_quantization`) out of mapped safetensors and quantises it on the device."""
    largest = max((max(block.matrices, default=0) for block in work.architecture.blocks), default=0)
    return max(work.architecture.vocabulary_parameters, largest) * max(work.formats.weights, HALF)


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


ONE_BY_ONE = 1.5
"""A parameter that is page-locked alone takes once to twice its size; this factor is used."""


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
        # Each parameter's part, and that of its gradient.
        host = int(ONE_BY_ONE * (own[0] + own[1])) + own[2] + alone.step_temporary // shards
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
