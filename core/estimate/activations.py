"""What the forward pass keeps: blocks, adapters, logits."""

from __future__ import annotations

from trainwiz.core.estimate.architecture import Block, block_lora_parameters, is_target
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
    # DoRA keeps what the base and the adapter hand out, for the gradient of the magnitudes (peft, tuners/lora/dora.py).
    scaled = (formats.products if work.quantized else formats.compute) + element if work.dora else 0
    copied = formats.autocast or formats.adapters != formats.compute
    total = HALF * block_lora_parameters(block, work.lora_rank, work.lora_targets) if formats.autocast else 0
    seen: set[str] = set()
    counted: set[str] = set()
    for name, inputs, outputs in block.linears:
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
        total += work.micro_batch * positions * (kept + work.lora_rank * element + masks + outputs * scaled)
    return total


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
    attention = _attention_bytes(work, block, queries, queries, "self")
    if block.cross_attention:
        attention += _attention_bytes(work, block, queries, work.length, "cross")
    # Norms beside the two before attention and feed-forward part; less than nothing where both parts read one.
    norms = (block.norms - 2) * _norm_bytes(work, block)
    if block.query_key_norm:
        norms += _norm_bytes(work, block, block.attention_width + block.kv_width)
    attention += tokens * (norms + block.state_bytes[1 if work.lora else 0])
    kept = attention + tokens * _feed_forward_bytes(work, block) + weight_copy_bytes(work, block.cast_parameters)
    inputs = 0 if work.checkpointing else tokens * kept_inputs(work, block)
    return kept + inputs + adapter_bytes(work, block, queries)


def checkpoint_bytes(work: Workload, block: Block) -> int:
    """The input of one block: all that a checkpointed block keeps, but for what LLM.int8() does."""
    each = block.hidden * work.formats.residual + kept_inputs(work, block)
    return work.micro_batch * work.queries_of(block) * each


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
    per_query += _linear_inputs(work, block, shared=3 if kind == "self" and not block.fused_qkv else 1)
    # Keys and values are computed from the encoder's output; autocast copies it for each.
    copied = kind == "cross" and formats.autocast and not work.lora
    cross_inputs = key_tokens * block.hidden * HALF * 2 if copied else 0
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
    softmax, compute = _softmax_bytes(work, block), work.formats.compute
    copied = block.attention_dropout or softmax != compute
    return softmax + (MASK if block.attention_dropout else 0) + (compute if copied else 0)


def _bias_bytes(work: Workload, block: Block, queries: int, keys: int) -> int:
    """The additive mask that a fused kernel keeps for padded rows; a learned bias has one for each head."""
    if work.attention == "flash_attention_2" or not (work.padded or block.position_bias):
        return 0
    heads = block.heads if block.position_bias else 1
    together = work.micro_batch**2 if work.packed else work.micro_batch
    return together * heads * queries * keys * work.formats.compute


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
        total += ffn * formats.products * (1 if work.lora else 2)
    if block.hidden_dropout:
        total += block.hidden * MASK
    if block.ffn_dropout:
        total += ffn * (MASK + (half if block.activation == "relu" and not work.lora else 0))
    return total


def _expert_bytes(work: Workload, block: Block) -> int:
    """Per token and expert that it takes: grouped products (transformers' grouped_mm), which autocast leaves as they are."""
    wide = work.formats.residual
    hidden = block.hidden * (1 if work.lora else 2)
    inner = block.expert_width * (4 if block.gated else 2) - (block.expert_width if work.lora else 0)
    return (hidden + inner) * wide


def _activation_bytes(work: Workload, block: Block) -> int:
    """Per element of the feed-forward width, the result included once."""
    half = work.formats.products
    wide = SINGLE if work.formats.autocast else half
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
    queries = work.queries_of(block)
    tokens = work.micro_batch * queries
    formats = work.formats
    copies = {"erf_unfused": 3.5, "tanh_unfused": 3.5, "relu": 1.0, "fused": 2.0 if block.gated else 1.0}
    wide = SINGLE if formats.autocast and block.activation == "tanh_unfused" else formats.products
    inside = int(tokens * copies[block.activation] * block.ffn * wide)
    if work.dora and not work.quantized:
        # The scaled sums of one matrix, in fp32 as the magnitudes are.
        inside += 3 * SINGLE * tokens * block.ffn
    if work.attention == "eager":
        # By then the feed-forward part of the block has been freed.
        scores = work.micro_batch * block.heads * queries * queries * 2 * _softmax_bytes(work, block)
        inside = max(inside, scores - tokens * _feed_forward_bytes(work, block))
    return (
        inside
        + tokens * block.hidden * formats.residual
        + whole_bytes(work)
        + position_bias_bytes(work, block, work.micro_batch, queries)
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
    return SINGLE if work.formats.autocast or block.fp32_softmax else work.formats.compute


# Bytes of the logits and of all that the loss makes of them (core/training/evaluation.py, sliced_loss.py, evaluation.py).


def positions_of(work: Workload, rows: int) -> int:
    return rows if work.architecture.pooled else rows * work.decoded_length


def sliced(work: Workload) -> bool:
    """The vocabulary product is computed in slices: whole logits never exist."""
    return work.loss_chunk is not None and not work.architecture.pooled


def _logits_at_once(work: Workload) -> int:
    positions = positions_of(work, work.micro_batch)
    return (min(work.loss_chunk or 0, positions) if sliced(work) else positions) * work.architecture.vocabulary


def handed_out_bytes(work: Workload) -> int:
    """At the end of the forward pass: the logits, and accelerate's fp32 copy of them under autocast."""
    each = work.formats.compute + (SINGLE if work.formats.autocast else 0)
    return 0 if sliced(work) else _logits_at_once(work) * (each + _capped_bytes(work))


def loss_forward_bytes(work: Workload) -> int:
    """The logits, an fp32 copy where they are not in fp32, and their log-softmax; of one slice where it is sliced."""
    out = SINGLE if work.formats.autocast and not sliced(work) else work.formats.compute
    return _logits_at_once(work) * (_read_bytes(out) + _capped_bytes(work))


def loss_backward_bytes(work: Workload) -> int:
    """The kept log-softmax and two gradients of the same size; a slice has its logits beside them."""
    compute = work.formats.compute
    beside = compute * (1 if compute == SINGLE else 2) if sliced(work) else 0
    return _logits_at_once(work) * (3 * SINGLE + beside + _capped_bytes(work))


def _capped_bytes(work: Workload) -> int:
    """For each logit: what a cap on the logits keeps for its gradient (Gemma 2)."""
    return work.formats.compute if work.architecture.capped_logits else 0


def slice_weight_bytes(work: Workload, *, backward: bool) -> int:
    """What a sliced loss holds of the vocabulary's weights: their cast, and in the backward pass their gradient."""
    if not sliced(work):
        return 0
    formats, elements = work.formats, work.architecture.vocabulary_parameters
    cast = elements * formats.compute if formats.compute != formats.weights else 0
    if not backward or (work.lora and not work.trains_table):
        return cast
    return cast + elements * (formats.adapters if work.lora else formats.weights)


def evaluation_bytes(work: Workload) -> int:
    """The model's own logits, which are read before anything copies them, and the fp32 of one slice."""
    vocabulary, compute = work.architecture.vocabulary, work.formats.compute
    positions = positions_of(work, work.eval_micro_batch)
    if sliced(work):
        return min(work.loss_chunk or 0, positions) * vocabulary * _read_bytes(compute)
    # A bias in fp32 makes the logits fp32 under autocast; the product is there until then.
    biased = work.architecture.biased_logits
    own = SINGLE if biased and work.formats.autocast else compute
    if work.architecture.pooled:
        return positions * vocabulary * (own + 2 * SINGLE)
    in_slice = min(positions, evaluation_slice(vocabulary)) * vocabulary * _read_bytes(own)
    changing = positions * vocabulary * compute if biased or work.architecture.capped_logits else 0
    return positions * vocabulary * own + max(in_slice, changing)


def _read_bytes(element: int) -> int:
    """For each logit that is read: itself, in fp32, and its log-softmax."""
    return element + (SINGLE if element != SINGLE else 0) + SINGLE
