"""Floating-point operations and bytes of one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.workload import SINGLE, Workload

FORWARD = 2
"""A multiplication and an addition for each weight and token."""
BETWEEN_AUTOCAST, BETWEEN_SINGLE, BETWEEN_HALF = 280, 350, 235
"""Bytes a token, pass and hidden unit of norms, activations, sums, casts, dropout."""
WEIGHT_AUTOCAST = 40
"""Bytes a weight: its half copy made and read, its gradient made, cast and added up."""
EAGER_SCORE = 65
"""Bytes a score of unfused attention, over three passes."""
LOGIT = 50
"""Bytes a logit, forward and backward, its fp32 copies included."""


def forward_flops(work: Workload) -> float:
    """Of one micro-batch on one process: matrix products, attention scores, vocabulary projection."""
    blocks = sum(block.layers * _block_flops(work, block) for block in work.architecture.blocks)
    return blocks + _head_flops(work)


def micro_batch_flops(work: Workload) -> float:
    """Forward and backward: twice the forward for all gradients, once where weights are frozen, and the
    recomputed forward of checkpointing (Korthikanti et al. 2022)."""
    forward = forward_flops(work)
    backward = 1.0 if work.lora else 2.0
    # The blocks are computed again, the vocabulary projection is not.
    recomputed = forward - _head_flops(work) if work.checkpointing else 0.0
    return forward * (1.0 + backward) + recomputed


def useful_flops(work: Workload) -> float:
    """Without what checkpointing computes twice: what published shares of the peak count."""
    return forward_flops(work) * (2.0 if work.lora else 3.0)


def kernels(work: Workload) -> int:
    """Operations of one micro-batch, each a kernel launch or more: 30 to 60 a block and pass in traces of six models."""
    each = 55 if work.formats.autocast else 40
    return each * _passes(work) * work.architecture.layers + 100


def moved_bytes(work: Workload) -> float:
    """What the operations of one micro-batch read and write: products, what lies between them, weights, logits.

    The constants are of traces of six models (core/estimate/trace), which this meets within a third. A cache
    that answers some of it makes the device's memory move less.
    """
    formats, architecture = work.formats, work.architecture
    element, passes = formats.compute, _passes(work)
    between = BETWEEN_AUTOCAST if formats.autocast else BETWEEN_SINGLE if element == SINGLE else BETWEEN_HALF
    total = 0.0
    for block in architecture.blocks:
        tokens = work.micro_batch * _queries(work, block)
        products = sum(inputs + outputs for _, inputs, outputs in block.linears)
        total += block.layers * tokens * passes * (element * products + between * block.hidden)
        if work.attention == "eager":
            total += block.layers * tokens * passes * EAGER_SCORE / 3 * block.heads * work.length
    each = WEIGHT_AUTOCAST if formats.autocast else 6 * formats.weights
    total += each * architecture.linear_parameters * (0.5 if work.lora else 1.0)
    return total + LOGIT * work.micro_batch * work.decoded_length * architecture.vocabulary


@dataclass(frozen=True, slots=True)
class Cost:
    """What one micro-batch asks of the device."""

    flops: float
    moved_bytes: float
    kernels: float

    def scaled(self, other: Cost, like: Cost) -> Cost:
        """These figures of `like`, at the size of `other`: each grows as the formulas of the two do."""
        return Cost(
            self.flops * other.flops / like.flops,
            self.moved_bytes * other.moved_bytes / like.moved_bytes,
            self.kernels * other.kernels / like.kernels,
        )


def cost_of(work: Workload) -> Cost:
    """By formulas, forward and backward."""
    return Cost(micro_batch_flops(work), moved_bytes(work), float(kernels(work)))


def forward_cost(work: Workload) -> Cost:
    """Of the forward pass alone: a third of what training without recomputation moves and launches, or a half with LoRA."""
    plain = replace(work, checkpointing=False)
    share = 1 / _passes(plain)
    return Cost(forward_flops(work), moved_bytes(plain) * share, kernels(plain) * share)


def _passes(work: Workload) -> int:
    """Forward, two of the backward pass (one where weights are frozen), and the recomputation."""
    return 1 + (1 if work.lora else 2) + (1 if work.checkpointing else 0)


def _head_flops(work: Workload) -> float:
    positions = work.micro_batch * work.decoded_length
    head = work.architecture.vocabulary_parameters
    if work.architecture.transform_head:
        head += work.architecture.hidden**2
    return float(FORWARD * positions * head)


def _queries(work: Workload, block: Block) -> int:
    decoder = block.causal and work.architecture.kind == "encoder-decoder"
    return work.decoded_length if decoder else work.length


def _block_flops(work: Workload, block: Block) -> float:
    queries = _queries(work, block)
    tokens = work.micro_batch * queries
    attended = queries / 2 if block.causal and work.attention != "eager" else queries
    scores = 2 * FORWARD * tokens * attended * block.attention_width
    if not block.cross_attention:
        return FORWARD * tokens * block.active_linear_parameters + scores
    # Keys and values of the cross-attention are computed from the encoder's tokens.
    cross = 2 * block.hidden * block.attention_width
    linear = FORWARD * (tokens * (block.active_linear_parameters - cross) + work.tokens * cross)
    return linear + scores + 2 * FORWARD * tokens * work.length * block.attention_width
