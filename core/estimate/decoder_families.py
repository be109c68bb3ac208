"""Readers of decoder configs whose queries, keys and values have matrices of their own, or one for all three.

The families differ in few things: core/estimate/decoder_traits.py says in which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.config_keys import (
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    POSITIONS,
    activation_of,
    dropout_of,
    number,
)
from trainwiz.core.estimate.decoder_traits import FAMILIES, Switch, Traits
from trainwiz.core.estimate.experts import expert_blocks

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
