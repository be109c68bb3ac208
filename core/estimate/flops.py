"""Floating-point operations and bytes of one optimizer step."""

from __future__ import annotations

from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.workload import Workload

FORWARD = 2
"""A multiplication and an addition for each weight and token."""


def forward_flops(work: Workload) -> float:
    """Of one micro-batch on one process: matrix products, attention scores, vocabulary projection."""
    total = 0.0
    for block in work.architecture.blocks:
        total += block.layers * _block_flops(work, block)
    positions = work.micro_batch * work.decoded_length
    head = work.architecture.vocabulary_parameters
    if work.architecture.transform_head:
        head += work.architecture.hidden**2
    return total + FORWARD * positions * head


def micro_batch_flops(work: Workload) -> float:
    """Forward and backward: twice the forward for all gradients, once where weights are frozen, and the
    recomputed forward of checkpointing (Korthikanti et al. 2022)."""
    forward = forward_flops(work)
    backward = 1.0 if work.lora else 2.0
    recomputed = 1.0 if work.checkpointing else 0.0
    return forward * (1.0 + backward + recomputed)


def useful_flops(work: Workload) -> float:
    """Without what checkpointing computes twice: what published shares of the peak count."""
    return forward_flops(work) * (2.0 if work.lora else 3.0)


def kernels(work: Workload) -> int:
    """Kernel launches of one micro-batch: about 70 a block and direction (counted in traces), more for a recomputation."""
    passes = 4 if work.checkpointing else 3
    return 70 * passes * work.architecture.layers + 200


def _block_flops(work: Workload, block: Block) -> float:
    decoder = block.causal and work.architecture.kind == "encoder-decoder"
    queries = work.decoded_length if decoder else work.length
    tokens = work.micro_batch * queries
    attended = queries / 2 if block.causal and work.attention != "eager" else queries
    scores = 2 * FORWARD * tokens * attended * block.attention_width
    if not block.cross_attention:
        return FORWARD * tokens * block.linear_parameters + scores
    # Keys and values of the cross-attention are computed from the encoder's tokens.
    cross = 2 * block.hidden * block.attention_width
    linear = FORWARD * (tokens * (block.linear_parameters - cross) + work.tokens * cross)
    return linear + scores + 2 * FORWARD * tokens * work.length * block.attention_width
