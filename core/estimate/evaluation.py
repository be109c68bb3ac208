"""The peak of evaluating and generating: no gradients and no kept activations, but logits, and keys and values."""

from __future__ import annotations

from trainwiz.core.estimate.activations import position_bias_bytes
from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.logits import evaluation_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload

SCORE_COPIES = 4
"""fp32 tensors of one score for each beam and word: logits, log-softmax, the processed and the summed scores."""


def evaluation_parts(work: Workload) -> dict[str, int]:
    """activations, logits and temporary of one evaluation batch beside what the process holds anyway.

    The logits are read inside the forward pass, while autocast still keeps its copies of the weights.
    """
    rows = work.eval_micro_batch
    hidden = max(block.hidden for block in work.architecture.blocks)
    stream = rows * (work.length + (work.target_length if work.architecture.kind == "encoder-decoder" else 0)) * hidden
    inside = max(_inside(work, block, rows) for block in work.architecture.blocks)
    logits = evaluation_bytes(work)
    during = max(inside, logits)
    return {
        "activations": 2 * stream * work.formats.residual,
        "logits": logits if during == logits else 0,
        "temporary": _copies(work) + (0 if during == logits else during),
    }


def generation_parts(work: Workload) -> dict[str, int]:
    """The same for a batch that generates: keys and values of every beam, and the scores of one position."""
    rows = work.eval_micro_batch * work.beams
    return {
        "activations": rows * cache_bytes_per_row(work),
        "logits": SCORE_COPIES * SINGLE * rows * work.architecture.vocabulary,
        "temporary": _decoder_weight_copies(work) + _largest_layer_cache(work, rows),
    }


def cache_bytes_per_row(work: Workload) -> int:
    """Keys and values of one beam at the end of its text; an encoder-decoder adds those of the source."""
    element = work.formats.compute
    total = 0
    for block in work.architecture.blocks:
        if not block.causal:
            continue
        kept = work.generation_length + (0 if block.cross_attention else work.length)
        total += 2 * block.layers * kept * block.kv_width * element
        if block.cross_attention:
            total += 2 * block.layers * work.length * block.kv_width * element
    if work.architecture.kind == "encoder-decoder":
        total += work.length * work.architecture.hidden * work.formats.residual
    return total


def _largest_layer_cache(work: Workload, rows: int) -> int:
    """Appending a position, and sorting the beams, copy the cache of one layer."""
    layers = sum(block.layers for block in work.architecture.blocks if block.causal)
    return rows * cache_bytes_per_row(work) // max(1, layers)


def weight_copies(work: Workload) -> int:
    """Autocast keeps a half-precision copy of every trained matrix through the forward pass, where nothing is shared out."""
    if not work.formats.autocast:
        return 0
    return HALF * (work.adapter_parameters if work.lora else work.architecture.linear_parameters)


def _copies(work: Workload) -> int:
    """FSDP gathers weights in the format that they compute in: autocast copies nothing."""
    return 0 if work.strategy == "fsdp" else weight_copies(work)


def _decoder_weight_copies(work: Workload) -> int:
    """The encoder has run by then."""
    encoder = sum(block.layers * block.cast_parameters for block in work.architecture.blocks if not block.causal)
    whole = work.lora or _copies(work) == 0
    return _copies(work) - (0 if whole else HALF * encoder)


_COPIES = {"erf_unfused": 4, "tanh_unfused": 4, "relu": 2, "fused": 2}
"""Tensors of the feed-forward width that an activation function has at once."""


def _inside(work: Workload, block: Block, rows: int) -> int:
    """Temporaries in the middle of one block's forward pass."""
    decoder = block.causal and block.cross_attention
    queries = work.decoded_length if decoder else work.length
    wide = SINGLE if work.formats.autocast and block.activation == "tanh_unfused" else work.formats.compute
    copies = _COPIES[block.activation] + (1 if block.gated else 0)
    inside = rows * queries * (copies * block.ffn * wide + 2 * block.hidden * work.formats.residual)
    if work.attention == "eager":
        scores = 2 * SINGLE * rows * block.heads * queries * max(queries, work.length)
        inside = max(inside, scores)
    if block.position_bias:
        inside += position_bias_bytes(work, block, rows, queries)
    return inside
