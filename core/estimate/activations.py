"""What the forward pass of one block keeps for the backward pass, tensor by tensor.

The counts follow the modeling code of transformers 5 and were checked against traces of it
(fake tensors): a fixed multiple such as "34 x tokens x hidden" (Korthikanti et al. 2022) misses the
copies that autocast makes for each matrix product, unfused activation functions and fp32 norms.
"""

from __future__ import annotations

from trainwiz.core.estimate.adapters import adapter_bytes
from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload

MASK = 1
"""Bytes of one element of a dropout mask on CUDA."""
LOG_SUM_EXP = 4


def block_bytes(work: Workload, block: Block) -> int:
    """Bytes that one block keeps for one micro-batch, weight copies of autocast included."""
    queries = work.decoded_length if block.causal and block.cross_attention else work.length
    tokens = work.micro_batch * queries
    attention = _attention_bytes(work, block, queries, queries, "self")
    if block.cross_attention:
        attention += _attention_bytes(work, block, queries, work.length, "cross")
    attention += tokens * _more_norms_bytes(work, block)
    kept = attention + tokens * _feed_forward_bytes(work, block) + weight_copy_bytes(work, block.cast_parameters)
    return kept + adapter_bytes(work, block, queries)


def checkpoint_bytes(work: Workload, block: Block) -> int:
    """The input of one block: all that a checkpointed block keeps."""
    queries = work.decoded_length if block.causal and block.cross_attention else work.length
    return work.micro_batch * queries * block.hidden * work.formats.residual


def weight_copy_bytes(work: Workload, linear_parameters: int) -> int:
    """Autocast's half-precision copies of trained weights, which the backward pass needs again."""
    return HALF * linear_parameters if work.formats.autocast and not work.lora and work.strategy != "fsdp" else 0


def _norm_bytes(work: Workload, block: Block, width: int | None = None) -> int:
    """Per token: what one norm keeps, its output apart."""
    formats, hidden = work.formats, width or block.hidden
    if block.norm == "layer":
        return hidden * formats.norm
    # An RMS norm in separate operations: its input in fp32, and the normalised value, which only
    # the gradient of the norm's own weight needs.
    scaled = 0 if work.lora else (SINGLE if formats.autocast or formats.compute == SINGLE else HALF)
    return hidden * (SINGLE + scaled)


def _more_norms_bytes(work: Workload, block: Block) -> int:
    """Per token: norms beside the two before attention and feed-forward part, those of queries and keys included;
    less than nothing where both parts read one norm."""
    more = (block.norms - 2) * _norm_bytes(work, block)
    if block.query_key_norm:
        more += _norm_bytes(work, block, block.attention_width + block.kv_width)
    return more


def _linear_inputs(work: Workload, block: Block, shared: int) -> int:
    """Per token: inputs that matrix products keep for their weights' gradients, in bytes.

    Autocast casts an fp32 input once for each product; otherwise `shared` products use one tensor.
    A frozen product keeps nothing.
    """
    formats = work.formats
    return 0 if work.lora else block.hidden * formats.compute * (shared if formats.autocast else 1)


def _attention_bytes(work: Workload, block: Block, queries: int, keys: int, kind: str) -> int:
    formats, width = work.formats, block.attention_width
    half = formats.compute
    tokens, key_tokens = work.micro_batch * queries, work.micro_batch * keys
    per_query = _norm_bytes(work, block)
    if kind == "self":
        per_query += _linear_inputs(work, block, shared=1 if block.fused_qkv else 3)
        cross_inputs = 0
    else:
        per_query += _linear_inputs(work, block, shared=1)
        # Keys and values are computed from the encoder's output; autocast copies it for each.
        cross_inputs = key_tokens * block.hidden * HALF * 2 if formats.autocast and not work.lora else 0
    per_query += 2 * width * half  # queries and the attention's output
    keys_values = 2 * key_tokens * width * half  # grouped heads are repeated to full width
    if block.hidden_dropout:
        per_query += block.hidden * MASK
    total = tokens * per_query + cross_inputs + keys_values
    if work.attention == "eager":
        return total + work.micro_batch * block.heads * queries * keys * _score_bytes(work, block)
    return total + tokens * block.heads * LOG_SUM_EXP + _bias_bytes(work, block, queries, keys)


def _score_bytes(work: Workload, block: Block) -> int:
    """Per score of eager attention: the softmax, its dropout mask, and the copy that multiplies the values."""
    formats = work.formats
    fp32 = formats.autocast or formats.compute == SINGLE or block.fp32_softmax
    softmax = SINGLE if fp32 else HALF
    copied = block.attention_dropout or (fp32 and formats.compute == HALF)
    return softmax + (MASK if block.attention_dropout else 0) + (formats.compute if copied else 0)


def _bias_bytes(work: Workload, block: Block, queries: int, keys: int) -> int:
    """The additive mask that a fused kernel keeps for padded rows; a learned bias has one for each head."""
    if work.attention == "flash_attention_2" or not (work.padded or block.position_bias):
        return 0
    heads = block.heads if block.position_bias else 1
    return work.micro_batch * heads * queries * keys * work.formats.compute


def _feed_forward_bytes(work: Workload, block: Block) -> int:
    """Per token."""
    formats = work.formats
    half = formats.compute
    ffn = block.ffn - block.active_experts * block.expert_width
    total = _norm_bytes(work, block) + block.active_experts * _expert_bytes(work, block)
    if ffn == 0:
        return total
    total += _linear_inputs(work, block, shared=2 if block.gated and not block.fused_gate else 1)
    total += ffn * _activation_bytes(work, block)
    if block.gated:
        # The product keeps both of its factors; the next matrix product keeps the result.
        total += ffn * half * (1 if work.lora else 2)
    if block.hidden_dropout:
        total += block.hidden * MASK
    if block.ffn_dropout:
        total += ffn * (MASK + (half if block.activation == "relu" and not work.lora else 0))
    return total


def _expert_bytes(work: Workload, block: Block) -> int:
    """Per token and expert that it takes: grouped products (transformers' grouped_mm), which autocast leaves as they are.

    The gathered input and the output keep their hidden width; gate, value, activation and product the expert's.
    """
    wide = work.formats.residual
    hidden = block.hidden * (1 if work.lora else 2)
    inner = block.expert_width * (4 if block.gated else 2) - (block.expert_width if work.lora else 0)
    return (hidden + inner) * wide


def _activation_bytes(work: Workload, block: Block) -> int:
    """Per element of the feed-forward width, the result included once."""
    formats = work.formats
    half = formats.compute
    wide = SINGLE if formats.autocast else half
    result = 0 if work.lora and not block.gated else half
    match block.activation:
        case "relu":
            return half
        case "erf_unfused":  # x/sqrt(2), x/2, 1+erf
            return 3 * half + result
        case "tanh_unfused":  # x for the cube, tanh and 1+tanh (fp32 under autocast: pow is in its list), x/2
            return 3 * wide + half + result
        case _:
            return half + result


def working_bytes(work: Workload, block: Block) -> int:
    """The temporary tensors in the middle of one block's backward pass."""
    queries = work.decoded_length if block.causal and block.cross_attention else work.length
    tokens = work.micro_batch * queries
    formats = work.formats
    copies = {"erf_unfused": 3.5, "tanh_unfused": 3.5, "relu": 1.0, "fused": 2.0 if block.gated else 1.0}
    wide = SINGLE if formats.autocast and block.activation == "tanh_unfused" else formats.compute
    inside = int(tokens * copies[block.activation] * block.ffn * wide)
    if work.attention == "eager":
        # By then the feed-forward part of the block has been freed.
        scores = work.micro_batch * block.heads * queries * queries * 2 * _softmax_bytes(work, block)
        inside = max(inside, scores - tokens * _feed_forward_bytes(work, block))
    return (
        inside + tokens * block.hidden * formats.residual + position_bias_bytes(work, block, work.micro_batch, queries)
    )


def position_bias_bytes(work: Workload, block: Block, rows: int, queries: int) -> int:
    """A learned bias on its way to the scores or back: summed with the mask of each row, in the compute format where
    autocast casts it, and that for the gradient."""
    if not block.position_bias:
        return 0
    compute = work.formats.compute
    each = SINGLE + 2 * compute if work.formats.autocast else 2 * compute
    return rows * block.heads * queries * queries * each


def _softmax_bytes(work: Workload, block: Block) -> int:
    formats = work.formats
    return SINGLE if formats.autocast or block.fp32_softmax else formats.compute
