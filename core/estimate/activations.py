"""What the forward pass keeps: blocks, adapters, logits."""

from __future__ import annotations

from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.states import kept_inputs, whole_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.language import tr

# Slices of the logits: how many positions of one exist at a time. Without torch, for plans and training alike.

EVALUATION_SLICE_BYTES = 256 * 2**20
"""What evaluation may hold beside the model's own logits."""
COPY_BYTES = 12
"""Of one logit in such a slice at most: taken out of the whole (4), its float32 (none more if it was), log-softmax (4),
and room for the temporary of the largest (4)."""


def evaluation_slice(vocabulary: int) -> int:
    """Positions of a slice in which evaluation reads logits that exist whole; at least 1."""
    return max(EVALUATION_SLICE_BYTES // (COPY_BYTES * max(vocabulary, 1)), 1)


NOT_SLICEABLE = frozenset({"fsmt", "prophetnet", "xlstm"})
"""Model types that have no last layer of their own, or whose logits are moved about after it. Others that no test
has met are refused by the training itself, before the first step or in it (core/training/chunked_logits.py)."""


def slicing_problem(model_type: str) -> str | None:
    """Why the loss of such a model cannot be computed in slices (training.loss_chunk), in one sentence; None if it can."""
    if model_type not in NOT_SLICEABLE:
        return None
    return tr(
        "The loss of a {model_type} model cannot be computed in chunks, because its logits are not a plain matrix "
        "product with the vocabulary; remove training.loss_chunk (--loss-chunk).",
        model_type=repr(model_type),
    )


_SHARED_INPUTS: dict[str, str] = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "query", "key", "value", "q", "k", "v"), "attention"),
    **dict.fromkeys(("gate_proj", "up_proj", "wi_0", "wi_1"), "feed-forward"),
}
"""Matrix products that read one and the same tensor."""
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
    # DoRA keeps what the base and the adapter hand out, for the gradient of the magnitudes (peft, tuners/lora/dora.py).
    scaled = (formats.products if work.quantized else formats.compute) + element if work.dora else 0
    copied = formats.autocast or formats.adapters != formats.compute
    each = copies = 0
    seen: set[str] = set()
    for name, inputs, outputs in work.adapted(block):
        copies += HALF * work.lora_rank * (inputs + outputs) * formats.autocast
        source = _SHARED_INPUTS.get(name, name)
        if copied or source not in seen:
            each += inputs * element
        seen.add(source)
        each += work.lora_rank * element + inputs * MASK * work.lora_dropout + outputs * scaled
    return copies + work.micro_batch * queries * each


# What the forward pass of one block keeps for the backward pass, tensor by tensor.
#
# The counts follow the modeling code of transformers 5 and were checked against traces of it
# (fake tensors): a fixed multiple such as "34 x tokens x hidden" (Korthikanti et al. 2022) misses the
# copies that autocast makes for each matrix product, unfused activation functions and fp32 norms.

LOG_SUM_EXP = 4


def block_bytes(work: Workload, block: Block) -> int:
    """Bytes that one block keeps for one micro-batch, weight copies of autocast included."""
    queries = work.queries_of(block)
    tokens = work.micro_batch * queries
    # Norms beside the two before attention and feed-forward part; less than nothing where both parts read one.
    each = (block.norms - 2) * _norm_bytes(work, block.norm, block.hidden)
    if block.query_key_norm:
        each += _norm_bytes(work, block.norm, block.attention_width + block.kv_width)
    each += block.state_bytes[1 if work.lora else 0] + _feed_forward_bytes(work, block)
    each += 0 if work.checkpointing else kept_inputs(work, block)
    kept = tokens * each + _attention_bytes(work, block, queries)
    if block.cross_attention:
        kept += _attention_bytes(work, block, work.length, cross=True)
    return kept + weight_copy_bytes(work, block.cast_parameters) + adapter_bytes(work, block, queries)


def checkpoint_bytes(work: Workload, block: Block) -> int:
    """The input of one block: all that a checkpointed block keeps, but for what LLM.int8() does."""
    each = block.hidden * work.formats.residual + kept_inputs(work, block)
    return work.micro_batch * work.queries_of(block) * each


def weight_copy_bytes(work: Workload, linear_parameters: int) -> int:
    """Autocast's half-precision copies of trained weights, which the backward pass needs again. FSDP gathers weights in
    the format that they compute in."""
    return HALF * linear_parameters if work.formats.autocast and not work.lora and work.strategy != "fsdp" else 0


def _norm_bytes(work: Workload, kind: str, width: int) -> int:
    """Per token: what one norm keeps, its output apart."""
    formats = work.formats
    if kind == "layer":
        return width * formats.norm
    # An RMS norm in separate operations: its input in fp32, and the normalised value, which only
    # the gradient of the norm's own weight needs.
    return width * (SINGLE + (0 if work.lora else formats.norm))


def _linear_inputs(work: Workload, block: Block, shared: int) -> int:
    """Per token: inputs that matrix products keep for their weights' gradients, in bytes.

    Autocast casts an fp32 input once for each product; otherwise `shared` products use one tensor.
    A frozen product keeps nothing.
    """
    formats = work.formats
    return 0 if work.lora else block.hidden * formats.compute * (shared if formats.autocast else 1)


def _attention_bytes(work: Workload, block: Block, keys: int, *, cross: bool = False) -> int:
    formats, width, queries = work.formats, block.attention_width, work.queries_of(block)
    tokens, key_tokens = work.micro_batch * queries, work.micro_batch * keys
    per_query = _norm_bytes(work, block.norm, block.hidden) + block.hidden * MASK * block.hidden_dropout
    per_query += _linear_inputs(work, block, shared=1 if cross or block.fused_qkv else 3)
    per_query += 2 * width * formats.compute  # queries and the attention's output
    per_key = 2 * width * formats.compute  # keys and values; grouped heads are repeated to full width
    if cross and formats.autocast and not work.lora:
        # Both are computed from the encoder's output, which autocast copies for each.
        per_key += 2 * block.hidden * HALF
    total = tokens * per_query + key_tokens * per_key
    if work.attention == "eager":
        return total + tokens * block.heads * keys * _score_bytes(work, block)
    return total + tokens * block.heads * LOG_SUM_EXP + _bias_bytes(work, block, queries * keys)


def _score_bytes(work: Workload, block: Block) -> int:
    """Per score of eager attention: the softmax, its dropout mask, and the copy that multiplies the values."""
    softmax, compute = _softmax_bytes(work, block), work.formats.compute
    copied = block.attention_dropout or softmax != compute
    return softmax + MASK * block.attention_dropout + compute * copied


def _bias_bytes(work: Workload, block: Block, scores: int) -> int:
    """The additive mask that a fused kernel keeps for padded rows; a learned bias has one for each head."""
    if work.attention == "flash_attention_2" or not (work.padded or block.position_bias):
        return 0
    heads = block.heads if block.position_bias else 1
    together = work.micro_batch if work.packed else 1
    return work.micro_batch * together * heads * scores * work.formats.compute


def _feed_forward_bytes(work: Workload, block: Block) -> int:
    """Per token."""
    formats = work.formats
    ffn = block.ffn - block.active_experts * block.expert_width
    total = _norm_bytes(work, block.norm, block.hidden) + block.active_experts * _expert_bytes(work, block)
    if ffn == 0:
        return total
    total += _linear_inputs(work, block, shared=2 if block.gated and not block.fused_gate else 1)
    total += ffn * _activation_bytes(work, block) + block.hidden * MASK * block.hidden_dropout
    if block.gated:
        # The product keeps both of its factors; the next matrix product keeps the result.
        total += ffn * formats.products * (1 if work.lora else 2)
    # A dropout keeps its mask, and one after relu its input too.
    dropped = MASK + (formats.compute if block.activation == "relu" and not work.lora else 0)
    return total + ffn * dropped * block.ffn_dropout


def _expert_bytes(work: Workload, block: Block) -> int:
    """Per token and expert that it takes: grouped products (transformers' grouped_mm), which autocast leaves as they are."""
    hidden = block.hidden * (1 if work.lora else 2)
    inner = block.expert_width * ((4 if block.gated else 2) - work.lora)
    return (hidden + inner) * work.formats.residual


def _activation_bytes(work: Workload, block: Block) -> int:
    """Per element of the feed-forward width, the result included once."""
    half = work.formats.products
    result = 0 if work.lora and not block.gated else half
    match block.activation:
        case "relu":
            return half
        case "erf_unfused":  # x/sqrt(2), x/2, 1+erf
            return 3 * half + result
        case "tanh_unfused":  # x for the cube, tanh and 1+tanh (fp32 under autocast: pow is in its list), x/2
            return 3 * _wide(work, block) + half + result
        case _:
            return half + result


def _wide(work: Workload, block: Block) -> int:
    """Bytes of an element inside the activation function."""
    return SINGLE if work.formats.autocast and block.activation == "tanh_unfused" else work.formats.products


def working_bytes(work: Workload, block: Block, rows: int) -> int:
    """Temporaries in the middle of one block while `rows` rows go through it, forward or backward."""
    queries = work.queries_of(block)
    tokens = rows * queries
    copies = {"erf_unfused": 3.5, "tanh_unfused": 3.5, "relu": 1.0, "fused": 2.0 if block.gated else 1.0}
    inside = int(tokens * copies[block.activation] * block.ffn * _wide(work, block))
    if work.dora and not work.quantized:
        # The scaled sums of one matrix, in fp32 as the magnitudes are.
        inside += 3 * SINGLE * tokens * block.ffn
    if work.attention == "eager":
        # By then the feed-forward part of the block has been freed.
        scores = tokens * block.heads * queries * 2 * _softmax_bytes(work, block)
        inside = max(inside, scores - tokens * _feed_forward_bytes(work, block))
    if block.position_bias:
        # A learned bias on its way to the scores or back: summed with the mask of each row, cast, and its gradient.
        each = 2 * work.formats.compute + (SINGLE if work.formats.autocast else 0)
        inside += tokens * block.heads * queries * each
    return inside + tokens * block.hidden * work.formats.residual + whole_bytes(work)


def _softmax_bytes(work: Workload, block: Block) -> int:
    return SINGLE if work.formats.autocast or block.fp32_softmax else work.formats.compute


# Bytes of the logits and of all that the loss makes of them (core/training/evaluation.py, chunked_logits.py).


def positions_of(work: Workload, rows: int) -> int:
    return rows if work.architecture.pooled else rows * work.decoded_length


def sliced(work: Workload) -> bool:
    """The vocabulary product is computed in slices: whole logits never exist."""
    return work.loss_chunk is not None and not work.architecture.pooled


def loss_bytes(work: Workload) -> int:
    """Where the backward pass begins: the kept log-softmax and two gradients of the same size; a slice has its logits
    beside them. Before that, forward, there is less."""
    positions, compute = positions_of(work, work.micro_batch), work.formats.compute
    if sliced(work):
        positions = min(work.loss_chunk or 0, positions)
    beside = compute * (1 if compute == SINGLE else 2) if sliced(work) else 0
    # What a cap on the logits keeps for its gradient (Gemma 2).
    capped = compute if work.architecture.capped_logits else 0
    return positions * work.architecture.vocabulary * (3 * SINGLE + beside + capped)


def slice_weight_bytes(work: Workload) -> int:
    """What a sliced loss holds of the vocabulary's weights in its backward pass: their cast, and their gradient."""
    if not sliced(work):
        return 0
    formats, elements = work.formats, work.architecture.vocabulary_parameters
    cast = elements * formats.compute if formats.compute != formats.weights else 0
    if work.lora and not work.trains_table:
        return cast
    return cast + elements * (formats.adapters if work.lora else formats.weights)


def evaluation_bytes(work: Workload) -> int:
    """The model's own logits, which are read before anything copies them, and of one slice their fp32 and its log-softmax."""
    vocabulary, compute = work.architecture.vocabulary, work.formats.compute
    positions = positions_of(work, work.eval_micro_batch)
    in_slice = SINGLE if compute == SINGLE else 2 * SINGLE
    if sliced(work):
        return min(work.loss_chunk or 0, positions) * vocabulary * (compute + in_slice)
    slice_positions = positions if work.architecture.pooled else min(positions, evaluation_slice(vocabulary))
    return vocabulary * (positions * compute + slice_positions * (compute + in_slice))
