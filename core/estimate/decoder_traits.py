"""What sets the families of decoders apart: one row each. Counts are those of transformers 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
