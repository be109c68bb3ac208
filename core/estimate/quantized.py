"""What the frozen base of adapters takes in 4 or 8 bits: its bytes, and what is made whole while a step computes.

Layouts and copies are those of bitsandbytes 0.50.2 (functional.py, autograd/_functions.py, backends/cuda/ops.py) as
transformers 5.23 loads it; QLoRA is Dettmers et al. 2023.
"""

from __future__ import annotations

from trainwiz.core.estimate.architecture import Block, is_target
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload

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
                for name, inputs, outputs in block.linears
                if is_target(name, work.lora_targets)
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
LAUNCHES = 5
"""Kernels of a packed layer in one pass beyond those of a plain one."""


def moved_more(work: Workload, block: Block, tokens: int) -> float:
    """Bytes that one pass over a block moves beyond those of a 16-bit base."""
    linears = packed_linears(work, block)
    weights = sum(inputs * outputs for _, inputs, outputs in linears)
    each = READ + WRITTEN + work.formats.compute if work.base_precision == "nf4" else 1.0
    dora = sum(
        DORA * inputs * outputs + DORA_HANDED_OUT * tokens * outputs
        for name, inputs, outputs in block.linears
        if work.dora and is_target(name, work.lora_targets)
    )
    return dora + weights * each + tokens * HANDED_OUT * sum(outputs for _, _, outputs in linears)


def loaded_bytes(work: Workload) -> int:
    """Host RAM while a pretrained base is quantised at loading: transformers reads one tensor after the other
    (core_model_loading.py, `has_on_the_fly_quantization`) out of mapped safetensors and quantises it on the device."""
    largest = max((max(block.matrices, default=0) for block in work.architecture.blocks), default=0)
    return max(work.architecture.vocabulary_parameters, largest) * max(work.formats.weights, HALF)
