"""Readers of decoder configs and what sets their families apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

Config = Mapping[str, Any]
Switch = bool | str
"""Always, never, or as the config's key of this name says; a key that starts with "+" is on where it is missing."""

DROPOUTS = ("resid_pdrop", "residual_dropout", "resid_dropout", "hidden_dropout", "dropout")
ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function", "activation")


@dataclass(frozen=True, slots=True)
class Traits:
    """What sets one family of decoders apart. The defaults are Llama's. Counts are those of transformers 5."""

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
    """Attention and feed-forward part side by side; where a key says so, one norm of two is then left out."""
    multi_query: Switch = False
    """One key and value head."""
    kv_heads: int | None = None
    """Where the config is silent; None: as many as heads."""
    head_dim: int | None = None
    ffn: int = 4
    """Feed-forward width where the config is silent, in hidden sizes."""
    ffn_names: tuple[str, ...] = FFN
    sizes: Mapping[str, int] = field(default_factory=dict)
    """hidden, heads, layers, vocabulary, ffn, positions where the config is silent; a config must name what is not here."""
    table_offset: int | None = None
    """Learned positions: the table has this many rows more than positions."""
    embedding_norm: bool = False
    rotary: bool = True
    fp32_softmax: bool = True
    residual_dropout: float = 0.0
    """The library's own default, as the next one is."""
    attention_dropout: float = 0.0
    attention: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    feed: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")


def _gemma(**more: Any) -> Traits:
    return Traits(activation="gelu_pytorch_tanh", tied=True, head_dim=256, **more)


def _older(**more: Any) -> Traits:
    """From before Llama: layer norms with a bias, no gate."""
    return Traits(**{"gated": False, "activation": "gelu_new", "norm": "layer", "norm_vectors": 2, **more})


def _biases(switch: Switch) -> dict[str, Any]:
    return {"qkv_bias": switch, "out_bias": switch, "ffn_bias": switch}


_ATTENTION_BIAS: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
_LLAMA = Traits(**_ATTENTION_BIAS, ffn_bias="mlp_bias")
_MISTRAL = Traits(kv_heads=8)
_OLMO2 = Traits(**_ATTENTION_BIAS, query_key_norm="width")
_OUT_PROJ = ("q_proj", "k_proj", "v_proj", "out_proj")
_FUSED: dict[str, Any] = {"fused_qkv": True, "feed": ("dense_h_to_4h", "dense_4h_to_h")}
_GPTJ: dict[str, Any] = {"norms": 1, "ffn_bias": True, "head_bias": True, "parallel": True, "feed": ("fc_in", "fc_out")}
_GPT2: dict[str, Any] = {
    **_biases(True), "tied": True, "fused_qkv": True, "rotary": False, "table_offset": 0, "residual_dropout": 0.1,
    "attention_dropout": 0.1, "attention": ("c_attn", "attn.c_proj"), "feed": ("c_fc", "mlp.c_proj"),
    "ffn_names": ("n_inner",), "sizes": {"hidden": 768, "heads": 12, "layers": 12, "vocabulary": 50257, "positions": 1024},
}  # fmt: skip

_GEMMA3 = {"hidden": 2304, "heads": 8, "layers": 26, "vocabulary": 262_208, "ffn": 9216, "positions": 131_072}
"""The text part of a model that sees names only what differs from these defaults of transformers."""

FAMILIES: dict[str, Traits] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "mixtral": _MISTRAL,
    "qwen2": Traits(qkv_bias=True),
    "qwen2_moe": Traits(qkv_bias="+qkv_bias"),
    "qwen3": Traits(**_ATTENTION_BIAS, query_key_norm="head", head_dim=128),
    "qwen3_moe": Traits(**_ATTENTION_BIAS, query_key_norm="head"),
    "smollm3": Traits(**_ATTENTION_BIAS, tied=True, kv_heads=4),
    "seed_oss": Traits(qkv_bias="+attention_bias", out_bias="attention_out_bias", ffn_bias="mlp_bias", head_dim=128),
    "gemma": _gemma(),
    "gemma2": _gemma(kv_heads=4, norms=4),
    "gemma3_text": _gemma(kv_heads=4, norms=4, query_key_norm="head", sizes=_GEMMA3),
    "phi3": Traits(
        fused_qkv=True, fused_gate=True, attention=("qkv_proj", "o_proj"), feed=("gate_up_proj", "down_proj")
    ),
    "olmo": Traits(**_ATTENTION_BIAS, norm="layer", norm_vectors=0),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "cohere": Traits(
        **_ATTENTION_BIAS, norm="layer", norms=1, query_key_norm="heads", query_key_switch="use_qk_norm", tied=True,
        parallel=True,
    ),
    "stablelm": Traits(
        norm="layer", norm_vectors=2, qkv_bias="use_qkv_bias", query_key_norm="heads", query_key_switch="qk_layernorm",
        parallel="use_parallel_residual",
    ),
    "starcoder2": _older(
        **_biases("+use_bias"), activation="gelu_pytorch_tanh", tied=True, kv_heads=2, feed=("c_fc", "mlp.c_proj")
    ),
    "phi": _older(
        **_biases(True), norms=1, head_bias=True, parallel=True, query_key_norm="head", query_key_switch="qk_layernorm",
        attention=("q_proj", "k_proj", "v_proj", "dense"), feed=("fc1", "fc2"),
    ),
    "opt": _older(
        **_biases("+enable_bias"), activation="relu", tied=True, table_offset=2, rotary=False, fp32_softmax=False,
        residual_dropout=0.1, attention=_OUT_PROJ, feed=("fc1", "fc2"),
    ),
    "gpt2": _older(**_GPT2, fp32_softmax=False),
    "gpt_bigcode": _older(**_GPT2, activation="gelu_pytorch_tanh", multi_query="+multi_query"),
    "gptj": _older(**_GPTJ, attention=_OUT_PROJ),
    "codegen": _older(**_GPTJ, fused_qkv=True, attention=("qkv_proj", "out_proj")),
    "gpt_neo": _older(
        out_bias=True, ffn_bias=True, tied=True, table_offset=0, rotary=False, attention=_OUT_PROJ,
        feed=("c_fc", "mlp.c_proj"),
    ),
    "gpt_neox": _older(
        **_FUSED, **_biases("+attention_bias") | {"ffn_bias": True}, activation="gelu",
        attention=("query_key_value", "attention.dense"),
    ),
    "bloom": _older(
        **_FUSED, **_biases(True), activation="gelu", tied=True, embedding_norm=True, rotary=False,
        attention=("query_key_value", "self_attention.dense"),
    ),
    "falcon": _older(
        **_FUSED, **_biases("bias"), activation="gelu", tied=True, fp32_softmax=False,
        attention=("query_key_value", "self_attention.dense"),
        ffn_names=("ffn_hidden_size",), sizes={"hidden": 4544, "heads": 71, "layers": 32, "vocabulary": 65024},
    ),
    "mpt": _older(
        activation="gelu", norm_vectors=1, tied=True, fused_qkv=True, rotary=False, attention=("Wqkv", "out_proj"),
        feed=("up_proj", "down_proj"),
    ),
}  # fmt: skip


def read_decoder(config: Config, traits: Traits | None = None) -> Architecture:
    family = traits or FAMILIES[str(config["model_type"])]
    sizes = family.sizes
    hidden = number(config, *HIDDEN, default=sizes.get("hidden"))
    heads = number(config, *HEADS, default=sizes.get("heads"))
    vocabulary = number(config, "vocab_size", default=sizes.get("vocabulary"))
    positions = number(config, *POSITIONS, default=sizes.get("positions", 2048))
    head_dim = number(config, *HEAD_DIM, default=family.head_dim or hidden // heads)
    kv_heads = 1 if _on(config, family.multi_query) else number(config, *KV_HEADS, default=family.kv_heads or heads)
    ffn = number(config, *family.ffn_names, default=sizes.get("ffn", family.ffn * hidden))
    width, kv_width, inner = heads * head_dim, kv_heads * head_dim, (1 + family.gated) * ffn + hidden
    normed = family.query_key_norm if _on(config, family.query_key_switch) else ""
    parallel = _on(config, family.parallel)
    norms = 1 if parallel and isinstance(family.parallel, str) else family.norms
    of_queries_and_keys = {"": 0, "head": 2 * head_dim * family.norm_vectors}
    of_norms = norms * family.norm_vectors * hidden + of_queries_and_keys.get(normed, (heads + kv_heads) * head_dim)
    biases = ((width + 2 * kv_width, family.qkv_bias), (hidden, family.out_bias), (inner, family.ffn_bias))
    block = Block(
        layers=number(config, *LAYERS, default=sizes.get("layers")),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        activation=activation_of(first_of(config, *ACTIVATIONS), family.activation),
        gated=family.gated,
        causal=True,
        norm=family.norm,
        rotary=family.rotary,
        fp32_softmax=family.fp32_softmax,
        fused_qkv=family.fused_qkv,
        hidden_dropout=dropout_of(config, *DROPOUTS, default=family.residual_dropout),
        attention_dropout=dropout_of(config, "attention_dropout", "attn_pdrop", default=family.attention_dropout),
        linear_parameters=2 * hidden * width + 2 * hidden * kv_width + (2 + family.gated) * hidden * ffn,
        other_parameters=of_norms + sum(size for size, switch in biases if _on(config, switch)),
        norm_parameters=of_norms,
        linears=_linears(family, hidden, width, kv_width, ffn),
        parallel=parallel,
        norms=norms,
        query_key_norm=bool(normed),
        fused_gate=family.fused_gate,
    )
    tied = bool(config.get("tie_word_embeddings", family.tied))
    table = 0 if family.table_offset is None else (positions + family.table_offset) * hidden
    outside = (1 + family.embedding_norm) * family.norm_vectors * hidden
    return Architecture(
        model_type=str(config["model_type"]),
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=expert_blocks(config, block),
        embedding_parameters=vocabulary * hidden + table + outside,
        norm_parameters=outside,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=vocabulary if family.head_bias else 0,
        tied=tied,
        max_positions=positions,
        rotary=family.rotary,
        capped_logits=bool(config.get("final_logit_softcapping", 30.0 if config["model_type"] == "gemma2" else None)),
    )


def read_falcon(config: Config) -> Architecture:
    """FalconForCausalLM: one key and value head, or groups of them; two norms side by side in the newer ones."""
    grouped = bool(config.get("new_decoder_architecture"))
    parallel = grouped or bool(config.get("parallel_attn", True))
    traits = replace(
        FAMILIES["falcon"],
        parallel=parallel,
        norms=number(config, "num_ln_in_parallel_attn", default=2 if grouped else 1) if parallel else 2,
        rotary=not config.get("alibi"),
        multi_query=False if grouped else "+multi_query",
    )
    return read_decoder(config if grouped else {**config, "num_kv_heads": None}, traits)


def first_of(config: Config, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _on(config: Config, switch: Switch) -> bool:
    if isinstance(switch, bool):
        return switch
    value = config.get(switch.removeprefix("+"))
    return switch.startswith("+") if value is None else bool(value)


def _linears(family: Traits, hidden: int, width: int, kv_width: int, ffn: int) -> tuple[tuple[str, int, int], ...]:
    outputs = [width + 2 * kv_width] if family.fused_qkv else [width, kv_width, kv_width]
    inner = 2 * ffn if family.fused_gate else ffn
    return (
        *((name, hidden, size) for name, size in zip(family.attention[:-1], outputs, strict=True)),
        (family.attention[-1], width, hidden),
        *((name, hidden, inner) for name in family.feed[:-1]),
        (family.feed[-1], ffn, hidden),
    )
