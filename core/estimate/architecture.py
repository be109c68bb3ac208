"""Architecture: one value for every transformer that trainwiz can plan, with exact parameter counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["encoder", "decoder", "encoder-decoder"]
Activation = Literal["fused", "relu", "erf_unfused", "tanh_unfused"]
"""How many copies of its input an activation function keeps for the backward pass:

- `fused`: one kernel (gelu, silu): the input and the result.
- `relu`: the result only.
- `erf_unfused`: ESM's own gelu, written as separate operations.
- `tanh_unfused`: "gelu_new" of GPT-2 and T5 v1.1, written as separate operations.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One kind of transformer block, repeated `layers` times."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    activation: Activation = "fused"
    gated: bool = False
    cross_attention: bool = False
    """Also attends to the encoder's output."""
    causal: bool = False
    norm: Literal["layer", "rms", "t5"] = "layer"
    post_norm: bool = False
    """The norm follows the residual sum (BERT, Marian) instead of preceding the sublayer."""
    rotary: bool = False
    fp32_softmax: bool = False
    """Eager attention takes its softmax in fp32 whatever the format of the rest (Llama and its kin)."""
    fused_qkv: bool = False
    """One matrix product makes queries, keys and values."""
    position_bias: bool = False
    """Attention adds a learned bias to its scores (T5), which keeps a score-sized tensor."""
    hidden_dropout: bool = False
    attention_dropout: bool = False
    ffn_dropout: bool = False
    linear_parameters: int = 0
    """Weights of the matrix products of one block: what autocast keeps a half-precision copy of. Where it is
    not given, of all `linears`."""
    other_parameters: int = 0
    """Biases, norms and position tables of one block."""
    norm_parameters: int = 0
    """Those of its norms, a part of `other_parameters`, where the family's reader tells them apart."""
    linears: tuple[tuple[str, int, int], ...] = ()
    """(module name, inputs, outputs) of each matrix product, for LoRA."""
    shared: bool = False
    """All `layers` are one and the same module (ALBERT)."""
    experts: int = 0
    """Feed-forward parts of which each token takes `active_experts` (Mixtral); 0 for an ordinary block. `ffn` is then the
    width that one token meets, shared experts included."""
    active_experts: int = 0
    expert_parameters: int = 0
    """Weights of all experts of one block, a part of `linear_parameters`. Autocast makes no copies of them."""
    expert_width: int = 0
    """Feed-forward width of one expert."""
    parallel: bool = False
    """Attention and feed-forward read one norm, side by side (Phi, Falcon)."""
    norms: int = 2
    """Norms of hidden width in one block, the one of cross-attention not counted."""
    query_key_norm: bool = False
    """Queries and keys are normalised (Qwen 3, OLMo 2)."""
    fused_gate: bool = False
    """One matrix product makes gate and value of the feed-forward part (Phi 3)."""
    state_bytes: tuple[int, int] = (0, 0)
    """Of linear attention: bytes for each token that it keeps besides what attention does, where its weights train and
    where they are frozen."""

    def __post_init__(self) -> None:
        if not self.linear_parameters:
            object.__setattr__(self, "linear_parameters", sum(self.matrices))

    @property
    def matrices(self) -> list[int]:
        """Elements of each of `linears`."""
        return [inputs * outputs for _, inputs, outputs in self.linears]

    @property
    def parameters(self) -> int:
        """Of one block."""
        return self.linear_parameters + self.other_parameters

    @property
    def total_parameters(self) -> int:
        """Of all `layers`."""
        return self.parameters * (1 if self.shared else self.layers)

    @property
    def cast_parameters(self) -> int:
        """Weights that autocast keeps a half-precision copy of; of one block, once for all where it is shared."""
        return (self.linear_parameters - self.expert_parameters) // (self.layers if self.shared else 1)

    @property
    def active_linear_parameters(self) -> int:
        """Weights that one token is multiplied with in one block."""
        if not self.experts:
            return self.linear_parameters
        idle = self.expert_parameters * (self.experts - self.active_experts) // self.experts
        return self.linear_parameters - idle

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as memory and time see it. Counts are of parameters, tied ones once."""

    model_type: str
    kind: Kind
    vocabulary: int
    hidden: int
    blocks: tuple[Block, ...]
    """Encoder first, then decoder."""
    embedding_parameters: int
    """Token, position and type tables with their norm."""
    head_linear_parameters: int = 0
    """Matrix products of the head, the tied vocabulary projection not counted."""
    head_other_parameters: int = 0
    norm_parameters: int = 0
    """Of the norms outside the blocks, counted above, where the family's reader tells them apart."""
    tied: bool = True
    """The vocabulary projection is the token table."""
    transform_head: bool = False
    """Dense, activation and norm before the vocabulary projection (BERT, ESM)."""
    frozen_parameters: int = 0
    """Parameters that are never trained (sinusoidal position tables)."""
    max_positions: int | None = None
    rotary: bool = False
    embedding_temporaries: int = 0
    """Hidden-sized tensors that the embedding keeps beside its result (ESM's token dropout)."""
    approximate: bool = False
    """Read by common keys, not by a reader of this family: sizes and the peak are less sure."""
    embedding_width: int | None = None
    """Width of the token table where it is not the hidden size (ELECTRA, ALBERT)."""
    pooled: bool = False
    """One prediction for each sequence, not for each position (sequence classification)."""
    capped_logits: bool = False
    """A tanh keeps the logits small (Gemma 2)."""

    @property
    def parameters(self) -> int:
        """All parameters, as `sum(p.numel() for p in model.parameters())` counts them."""
        return (
            sum(block.total_parameters for block in self.blocks)
            + self.embedding_parameters
            + self.head_linear_parameters
            + self.head_other_parameters
        )

    @property
    def trainable_parameters(self) -> int:
        return self.parameters - self.frozen_parameters

    @property
    def vocabulary_parameters(self) -> int:
        return self.vocabulary * (self.embedding_width or self.hidden)

    @property
    def linear_parameters(self) -> int:
        """Weights that autocast copies: of all matrix products, the vocabulary projection included even where it is tied."""
        blocks = sum(block.layers * block.cast_parameters for block in self.blocks)
        return blocks + self.head_linear_parameters + (self.vocabulary_parameters if self.tied else 0)

    @property
    def layers(self) -> int:
        return sum(block.layers for block in self.blocks)

    def linear_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for block in self.blocks for name, _, _ in block.linears))


def is_target(name: str, targets: tuple[str, ...]) -> bool:
    """Whether LoRA adapts the matrix product `name`: by its name or the last part of it, as peft matches."""
    return name in targets or name.rsplit(".", 1)[-1] in targets


TABLES = ("embed_tokens", "wte", "embed_in", "word_embeddings", "shared", "tok_embeddings")
LAST_NORMS = ("norm", "ln_f", "final_layernorm", "final_layer_norm")
HEADS_OF_VOCABULARY = ("lm_head", "embed_out", "output_layer")


def is_table(name: str) -> bool:
    return name.rpartition(".")[2] in (*TABLES, *HEADS_OF_VOCABULARY)


def module_parameters(architecture: Architecture, names: Sequence[str]) -> int:
    """Of modules that are trained whole beside adapters, by name: peft copies each (`modules_to_save`). A head that is the
    token table is one copy with it. Norms are of the hidden width, and all of them for "norm", as peft goes by the end of a
    name."""
    last = {name.rpartition(".")[2] for name in names}
    tables = bool(last & {*TABLES}) + bool(last & {*HEADS_OF_VOCABULARY})
    total = architecture.vocabulary_parameters * (min(1, tables) if architecture.tied else tables)
    for block in architecture.blocks:
        linears = sum(inputs * outputs for name, inputs, outputs in block.linears if is_target(name, (*last,)))
        total += block.layers * (linears + block.norms * block.hidden * ("norm" in last))
    return total + architecture.hidden * bool(last & {*LAST_NORMS})


ALL_LINEAR = ("all-linear",)
"""As `peft.targets`: peft's own word."""


def lora_targets(architecture: Architecture, named: Sequence[str] = ()) -> tuple[str, ...]:
    """The modules that LoRA adapts: `named`, or every linear layer of the blocks, as "all-linear" and none at all mean."""
    return architecture.linear_names() if not named or tuple(named) == ALL_LINEAR else tuple(named)


# Reading the keys of a Hugging Face architecture config, which name the same thing in many ways.

_TANH_UNFUSED = {"gelu_new", "gelu_fast", "gelu_accurate"}

LARGEST = 2**40
"""No size of a model is above this; figures made of larger ones would leave the range of a float."""

HIDDEN = ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "model_dim", "embed_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads")
KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "num_query_groups", "multi_query_group_num"
)  # fmt: skip
HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "attention_head_dim")
FFN = (
    "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "hidden_dim", "d_ff", "decoder_ffn_dim",
    "mlp_hidden_size",
)  # fmt: skip
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
"""Names that configs have for one and the same size."""


class MissingKeyError(Exception):
    """A config lacks a key that its family has no default for."""


def number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first key that is there, as a whole number; MissingKeyError without one and without a default,
    TypeError, ValueError or OverflowError for what is no number of a sensible size."""
    for name in names:
        if config.get(name) is not None:
            value = int(config[name])
            if abs(value) > LARGEST:
                raise ValueError(f"{name} is too large")
            return value
    if default is None:
        raise MissingKeyError(names[0])
    return default


def activation_of(name: Any, default: str = "gelu") -> Activation:
    """Whether transformers runs the activation function as one kernel."""
    name = str(name or default)
    if name in _TANH_UNFUSED:
        return "tanh_unfused"
    return "relu" if name == "relu" else "fused"


def dropout_of(config: Mapping[str, Any], *names: str, default: float = 0.1) -> bool:
    """Whether a dropout is active; `default` is the library's own."""
    for name in names:
        if config.get(name) is not None:
            return float(config[name]) > 0
    return default > 0


COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk")
WIDTH = ("moe_intermediate_size", "expert_ffn_size", "moe_ffn_hidden_size")


def expert_blocks(config: Mapping[str, Any], dense: Block) -> tuple[Block, ...]:
    """`dense` itself without experts; else blocks of experts, after the first ones that stay dense."""
    if all(config.get(name) is None for name in COUNT) or number(config, *COUNT) < 2:
        return (dense,)
    sparse = _sparse(config, dense)
    # Layers without experts: the first ones, those that are named, or all but every n-th.
    first = number(config, "first_k_dense_replace", default=0)
    step = number(config, "decoder_sparse_step", "moe_layer_frequency", "moe_layer_freq", default=1)
    named = config.get("mlp_only_layers") or ()
    plain = max(min(first, dense.layers), dense.layers - dense.layers // max(1, step)) + len(named)
    plain = min(plain, dense.layers - 1)
    if plain == 0:
        return (sparse,)
    return (replace(dense, layers=plain), replace(sparse, layers=dense.layers - plain))


def _sparse(config: Mapping[str, Any], dense: Block) -> Block:
    experts, active = number(config, *COUNT), number(config, *ACTIVE, default=2)
    width = number(config, *WIDTH, default=dense.ffn)
    shared = number(config, "shared_expert_intermediate_size", default=0)
    gate = dense.hidden if shared else 0
    shared = shared or width * number(config, "n_shared_experts", default=0)
    products = 3 if dense.gated else 2
    all_experts = experts * products * dense.hidden * width
    rest = dense.linear_parameters - products * dense.hidden * dense.ffn
    # Products of the feed-forward part come last; those of experts are no modules that an adapter can sit on.
    feed = 3 if dense.gated and not dense.fused_gate else 2
    return replace(
        dense,
        ffn=active * width + shared,
        experts=experts,
        active_experts=active,
        expert_parameters=all_experts,
        expert_width=width,
        linear_parameters=rest + all_experts + products * dense.hidden * shared + experts * dense.hidden + gate,
        linears=dense.linears[:-feed],
    )


def classifying(architecture: Architecture, config: Mapping[str, Any], *, pooled: bool) -> Architecture:
    """The same model with a prediction of `num_labels` for each sequence (pooled), before which encoders have a dense
    layer, or for each token."""
    named = config.get("id2label")
    labels = number(config, "num_labels", default=len(named) if isinstance(named, Mapping) and named else 2)
    hidden = architecture.hidden
    decoder = architecture.kind == "decoder"
    # ModernBERT has it before every head.
    dense = hidden if not decoder and (pooled or architecture.model_type == "modernbert") else 0
    return replace(
        architecture,
        vocabulary=labels,
        head_linear_parameters=(dense + labels) * hidden,
        head_other_parameters=0 if decoder and pooled else dense + labels,
        tied=False,
        transform_head=False,
        pooled=pooled,
        embedding_width=None,
    )
