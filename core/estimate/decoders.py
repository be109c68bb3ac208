"""Readers of decoder configs and what sets their families apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.estimate.architecture import (
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    POSITIONS,
    Architecture,
    Block,
    activation_of,
    dropout_of,
    expert_blocks,
    number,
)

# What sets the families of decoders apart: one row each. Counts are those of transformers 5.

Switch = bool | str
"""Always, never, or as the config's key of this name says; a key that starts with "+" is on where it is missing."""

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Traits:
    """What sets one family of decoders apart. The defaults are Llama's."""

    gated: bool = True
    activation: str = "silu"
    norm: Literal["layer", "rms"] = "rms"
    norm_vectors: int = 1
    """Parameter vectors of one norm: 2 with a bias, 0 without a weight."""
    norms: int = 2
    query_key_norm: Literal["", "head", "width", "heads"] = ""
    """Over each head with one weight, over the full width, or over each head with its own weight."""
    query_key_switch: Switch = True
    qkv_bias: Switch = False
    out_bias: Switch = False
    ffn_bias: Switch = False
    head_bias: bool = False
    tied: bool = False
    fused_qkv: bool = False
    fused_gate: bool = False
    parallel: Switch = False
    kv_heads: int | None = None
    """Where the config is silent; None: as many as heads."""
    head_dim: int | None = None
    ffn: int = 4
    """Feed-forward width where the config is silent, in hidden sizes."""
    table_offset: int | None = None
    """Learned positions: the table has this many rows more than positions."""
    embedding_norm: bool = False
    final_norm: bool = True
    rotary: bool = True
    fp32_softmax: bool = True
    residual_dropout: float = 0.0
    """The library's own default."""
    attention: tuple[str, ...] = QKVO
    feed: tuple[str, ...] = GATED


FAMILIES: dict[str, Traits] = {
    "llama": Traits(qkv_bias="attention_bias", out_bias="attention_bias", ffn_bias="mlp_bias"),
    "mistral": Traits(kv_heads=8),
    "ministral": Traits(kv_heads=8),
    "mixtral": Traits(kv_heads=8),
    "qwen2": Traits(qkv_bias=True),
    "qwen2_moe": Traits(qkv_bias="+qkv_bias"),
    "qwen3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", query_key_norm="head", head_dim=128),
    "qwen3_moe": Traits(qkv_bias="attention_bias", out_bias="attention_bias", query_key_norm="head"),
    "smollm3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", tied=True, kv_heads=4),
    "granite": Traits(qkv_bias="attention_bias", out_bias="attention_bias", ffn_bias="mlp_bias"),
    "seed_oss": Traits(qkv_bias="+attention_bias", out_bias="attention_out_bias", ffn_bias="mlp_bias", head_dim=128),
    "gemma": Traits(activation="gelu_pytorch_tanh", tied=True, head_dim=256),
    "gemma2": Traits(activation="gelu_pytorch_tanh", tied=True, kv_heads=4, head_dim=256, norms=4),
    "gemma3_text": Traits(
        activation="gelu_pytorch_tanh", tied=True, kv_heads=4, head_dim=256, norms=4, query_key_norm="head"
    ),
    "phi3": Traits(
        fused_qkv=True, fused_gate=True, attention=("qkv_proj", "o_proj"), feed=("gate_up_proj", "down_proj")
    ),
    "olmo": Traits(norm="layer", norm_vectors=0, qkv_bias="attention_bias", out_bias="attention_bias"),
    "olmo2": Traits(qkv_bias="attention_bias", out_bias="attention_bias", query_key_norm="width"),
    "olmo3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", query_key_norm="width"),
    "cohere": Traits(
        norm="layer",
        norms=1,
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        query_key_norm="heads",
        query_key_switch="use_qk_norm",
        tied=True,
        parallel=True,
    ),
    "stablelm": Traits(
        norm="layer",
        norm_vectors=2,
        qkv_bias="use_qkv_bias",
        query_key_norm="heads",
        query_key_switch="qk_layernorm",
        parallel="use_parallel_residual",
    ),
    "starcoder2": Traits(
        gated=False,
        activation="gelu_pytorch_tanh",
        norm="layer",
        norm_vectors=2,
        qkv_bias="+use_bias",
        out_bias="+use_bias",
        ffn_bias="+use_bias",
        tied=True,
        kv_heads=2,
        feed=("c_fc", "mlp.c_proj"),
    ),
    "phi": Traits(
        gated=False,
        activation="gelu_new",
        norm="layer",
        norm_vectors=2,
        norms=1,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
        parallel=True,
        query_key_norm="head",
        query_key_switch="qk_layernorm",
        attention=("q_proj", "k_proj", "v_proj", "dense"),
        feed=("fc1", "fc2"),
    ),
    "opt": Traits(
        gated=False,
        activation="relu",
        norm="layer",
        norm_vectors=2,
        qkv_bias="+enable_bias",
        out_bias="+enable_bias",
        ffn_bias="+enable_bias",
        tied=True,
        table_offset=2,
        rotary=False,
        fp32_softmax=False,
        residual_dropout=0.1,
        attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        feed=("fc1", "fc2"),
    ),
    "gptj": Traits(
        gated=False,
        activation="gelu_new",
        norm="layer",
        norm_vectors=2,
        norms=1,
        ffn_bias=True,
        head_bias=True,
        parallel=True,
        attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        feed=("fc_in", "fc_out"),
    ),
    "codegen": Traits(
        gated=False,
        activation="gelu_new",
        norm="layer",
        norm_vectors=2,
        norms=1,
        ffn_bias=True,
        head_bias=True,
        parallel=True,
        fused_qkv=True,
        attention=("qkv_proj", "out_proj"),
        feed=("fc_in", "fc_out"),
    ),
    "gpt_neo": Traits(
        gated=False,
        activation="gelu_new",
        norm="layer",
        norm_vectors=2,
        out_bias=True,
        ffn_bias=True,
        tied=True,
        table_offset=0,
        rotary=False,
        attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        feed=("c_fc", "mlp.c_proj"),
    ),
    "bloom": Traits(
        gated=False,
        activation="gelu",
        norm="layer",
        norm_vectors=2,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        tied=True,
        fused_qkv=True,
        embedding_norm=True,
        rotary=False,
        attention=("query_key_value", "self_attention.dense"),
        feed=("dense_h_to_4h", "dense_4h_to_h"),
    ),
    "mpt": Traits(
        gated=False,
        activation="gelu",
        norm="layer",
        tied=True,
        fused_qkv=True,
        rotary=False,
        attention=("Wqkv", "out_proj"),
        feed=("up_proj", "down_proj"),
    ),
}


# Readers of decoder configs whose queries, keys and values have matrices of their own, or one for all three.
#
# The families differ in few things: core/estimate/decoders.py says in which.

Config = Mapping[str, Any]


def read_decoder(config: Config, traits: Traits | None = None) -> Architecture:
    """A decoder of the family that the config names, or of `traits`."""
    family = traits or FAMILIES[str(config["model_type"])]
    hidden = number(config, *HIDDEN)
    heads = number(config, *HEADS)
    vocabulary = number(config, "vocab_size")
    positions = number(config, *POSITIONS, default=2048)
    head_dim = number(config, *HEAD_DIM, default=family.head_dim or hidden // heads)
    kv_heads = number(config, *KV_HEADS, default=family.kv_heads or heads)
    ffn = number(config, *FFN, default=family.ffn * hidden)
    width, kv_width = heads * head_dim, kv_heads * head_dim
    products = 3 if family.gated else 2
    normed = family.query_key_norm if _on(config, family.query_key_switch) else ""
    other = family.norms * family.norm_vectors * hidden + _norm_weights(normed, family, heads, kv_heads, head_dim)
    other += (width + 2 * kv_width) * _on(config, family.qkv_bias) + hidden * _on(config, family.out_bias)
    other += ((products - 1) * ffn + hidden) * _on(config, family.ffn_bias)
    parallel = _on(config, family.parallel)
    if parallel and family.norms == 2 and isinstance(family.parallel, str):
        other -= family.norm_vectors * hidden
    block = Block(
        layers=number(config, *LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        activation=activation_of(_activation(config), family.activation),
        gated=family.gated,
        causal=True,
        norm=family.norm,
        rotary=family.rotary,
        fp32_softmax=family.fp32_softmax,
        fused_qkv=family.fused_qkv,
        hidden_dropout=dropout_of(
            config,
            "resid_pdrop",
            "residual_dropout",
            "resid_dropout",
            "hidden_dropout",
            "dropout",
            default=family.residual_dropout,
        ),
        attention_dropout=dropout_of(config, "attention_dropout", "attn_pdrop", default=0.0),
        linear_parameters=2 * hidden * width + 2 * hidden * kv_width + products * hidden * ffn,
        other_parameters=other,
        linears=_linears(family, hidden, width, kv_width, ffn),
        parallel=parallel,
        norms=1 if parallel else family.norms,
        query_key_norm=bool(normed),
        fused_gate=family.fused_gate,
    )
    tied = bool(config.get("tie_word_embeddings", family.tied))
    table = 0 if family.table_offset is None else (positions + family.table_offset) * hidden
    norms = (family.final_norm + family.embedding_norm) * family.norm_vectors * hidden
    return Architecture(
        model_type=str(config["model_type"]),
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=expert_blocks(config, block),
        embedding_parameters=vocabulary * hidden + table + norms,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=vocabulary if family.head_bias else 0,
        tied=tied,
        max_positions=positions,
        rotary=family.rotary,
        capped_logits=bool(config.get("final_logit_softcapping", 30.0 if config["model_type"] == "gemma2" else None)),
    )


def _on(config: Config, switch: Switch) -> bool:
    if isinstance(switch, bool):
        return switch
    missing = switch.startswith("+")
    value = config.get(switch.removeprefix("+"))
    return missing if value is None else bool(value)


def _activation(config: Config) -> Any:
    names = ("hidden_activation", "hidden_act", "activation_function", "activation")
    return next((config[name] for name in names if config.get(name) is not None), None)


def _norm_weights(kind: str, family: Traits, heads: int, kv_heads: int, head_dim: int) -> int:
    """Parameters of the norms of queries and keys."""
    match kind:
        case "head":
            return 2 * head_dim * family.norm_vectors
        case "width" | "heads":
            return (heads + kv_heads) * head_dim
        case _:
            return 0


def _linears(family: Traits, hidden: int, width: int, kv_width: int, ffn: int) -> tuple[tuple[str, int, int], ...]:
    names = family.attention
    if family.fused_qkv:
        attention = ((names[0], hidden, width + 2 * kv_width), (names[1], width, hidden))
    else:
        sizes = ((hidden, width), (hidden, kv_width), (hidden, kv_width), (width, hidden))
        attention = tuple((name, *size) for name, size in zip(names, sizes, strict=True))  # type: ignore[assignment]
    inner = 2 * ffn if family.fused_gate else ffn
    feed = tuple((name, hidden, inner) for name in family.feed[:-1])
    return (*attention, *feed, (family.feed[-1], ffn, hidden))
