"""Architecture: one value for every transformer that trainwiz can plan, with exact parameter counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
    """Weights of the matrix products of one block: what autocast keeps a half-precision copy of."""
    other_parameters: int = 0
    """Biases, norms and position tables of one block."""
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
    head_linear_parameters: int
    """Matrix products of the head, the tied vocabulary projection not counted."""
    head_other_parameters: int
    tied: bool
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
    biased_logits: bool = False
    """A bias in a buffer of its own is added to the logits (BART, Marian)."""
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
        """Elements of the vocabulary projection (tied or not)."""
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
        """Module names that LoRA can target, in the model's order."""
        return tuple(dict.fromkeys(name for block in self.blocks for name, _, _ in block.linears))


def is_target(name: str, targets: tuple[str, ...]) -> bool:
    """Whether LoRA adapts the matrix product `name`: by its name or the last part of it, as peft matches."""
    return name in targets or name.rsplit(".", 1)[-1] in targets


def lora_parameters(architecture: Architecture, rank: int, targets: tuple[str, ...]) -> int:
    """Trainable parameters of LoRA: rank x (inputs + outputs) for each adapted matrix (Hu et al. 2021)."""
    return sum(block.layers * block_lora_parameters(block, rank, targets) for block in architecture.blocks)


def block_lora_parameters(block: Block, rank: int, targets: tuple[str, ...]) -> int:
    """Of one block."""
    return sum(rank * (inputs + outputs) for name, inputs, outputs in block.linears if is_target(name, targets))


ALL_LINEAR = ("all-linear",)
"""As `peft.targets`: peft's own word."""


def lora_targets(architecture: Architecture, named: Sequence[str] = ()) -> tuple[str, ...]:
    """The modules that LoRA adapts: `named`, or every linear layer of the blocks, as "all-linear" and none at all mean.

    peft's own all-linear also takes what some models have beside their blocks (the dense layer of a head)."""
    return architecture.linear_names() if not named or tuple(named) == ALL_LINEAR else tuple(named)


def attention_projections(architecture: Architecture) -> tuple[str, ...]:
    """What many published runs adapt."""
    attention = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "out_proj",
        "query",
        "key",
        "value",
        "c_attn",
        "query_key_value",
    )
    return tuple(name for name in architecture.linear_names() if name in (*attention, "q", "k", "v", "o"))
