"""What LoRA adapters keep for the backward pass beside the frozen block that they sit on."""

from __future__ import annotations

from trainwiz.core.estimate.architecture import Block, block_lora_parameters, is_target
from trainwiz.core.estimate.workload import HALF, Workload

_SHARED_INPUTS: dict[str, str] = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "query", "key", "value", "q", "k", "v"), "attention"),
    **dict.fromkeys(("gate_proj", "up_proj", "wi_0", "wi_1"), "feed-forward"),
}
"""Matrix products that read one and the same tensor."""
_FROM_ENCODER = ("k_proj", "v_proj", "k", "v")
MASK = 1


def adapter_bytes(work: Workload, block: Block, queries: int) -> int:
    """Bytes of one block's adapters for one micro-batch, at `queries` positions.

    Each adapter keeps its input for the gradient of A and the product of rank width for that of B.
    peft casts the input to the adapter's format (autocast then to half): a copy for each adapter,
    unless the formats are alike, and then products of one input share it.
    """
    if not work.lora:
        return 0
    formats = work.formats
    element = HALF if formats.autocast else formats.adapters
    copied = formats.autocast or formats.adapters != formats.compute
    total = HALF * block_lora_parameters(block, work.lora_rank, work.lora_targets) if formats.autocast else 0
    seen: set[str] = set()
    counted: set[str] = set()
    for name, inputs, _ in block.linears:
        # The second product of a name belongs to the cross-attention.
        cross = name in counted
        counted.add(name)
        if not is_target(name, work.lora_targets):
            continue
        positions = work.length if cross and name in _FROM_ENCODER else queries
        source = f"{_SHARED_INPUTS.get(name, name)}{positions if cross else ''}"
        kept = inputs * element if copied or source not in seen else 0
        seen.add(source)
        masks = inputs * MASK if work.lora_dropout else 0
        total += work.micro_batch * positions * (kept + work.lora_rank * element + masks)
    return total
