"""Readers of decoder configs and what sets their families apart."""

from __future__ import annotations

from collections import Counter
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

DROPOUTS = ("hidden_dropout_prob", "resid_pdrop", "residual_dropout", "resid_dropout", "hidden_dropout", "dropout")
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function", "activation")


@dataclass(frozen=True, slots=True)
class Traits:
    """What sets one family of decoders apart. The defaults are Llama's. Counts are those of transformers 5."""

    gated: bool = True
    activation: str = "silu"
    norm: Literal["layer", "rms"] = "rms"
    norm_vectors: int = 1
    """Parameter vectors of one norm: 2 with a bias."""
    norms: int = 2
    query_key_norm: Literal["", "head", "width"] = ""
    """Over each head with one weight, or over the full width."""
    qkv_bias: Switch = False
    out_bias: Switch = False
    ffn_bias: Switch = False
    head_bias: bool = False
    tied: bool = False
    fused_qkv: bool = False
    fused_gate: bool = False
    parallel: bool = False
    """Attention and feed-forward part side by side, with one norm."""
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
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "starcoder2": _older(
        **_biases("+use_bias"), activation="gelu_pytorch_tanh", tied=True, kv_heads=2, feed=("c_fc", "mlp.c_proj")
    ),
    "phi": _older(
        **_biases(True), norms=1, head_bias=True, parallel=True,
        attention=("q_proj", "k_proj", "v_proj", "dense"), feed=("fc1", "fc2"),
    ),
    "opt": _older(
        **_biases("+enable_bias"), activation="relu", tied=True, table_offset=2, rotary=False, fp32_softmax=False,
        residual_dropout=0.1, attention=("q_proj", "k_proj", "v_proj", "out_proj"), feed=("fc1", "fc2"),
    ),
    "gpt2": _older(**_GPT2, fp32_softmax=False),
    "gpt_bigcode": _older(**_GPT2, activation="gelu_pytorch_tanh", multi_query="+multi_query"),
    "gpt_neox": _older(
        **_biases("+attention_bias") | {"ffn_bias": True}, activation="gelu", fused_qkv=True,
        attention=("query_key_value", "attention.dense"), feed=("dense_h_to_4h", "dense_4h_to_h"),
    ),
    "gptj": _older(
        norms=1, ffn_bias=True, head_bias=True, parallel=True, attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        feed=("fc_in", "fc_out"),
    ),
    "bloom": _older(
        **_biases(True), activation="gelu", tied=True, embedding_norm=True, rotary=False, fused_qkv=True,
        attention=("query_key_value", "self_attention.dense"), feed=("dense_h_to_4h", "dense_4h_to_h"),
    ),
    "falcon": _older(
        **_biases("bias"), activation="gelu", tied=True, fp32_softmax=False, fused_qkv=True, parallel=True,
        attention=("query_key_value", "self_attention.dense"), feed=("dense_h_to_4h", "dense_4h_to_h"),
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
    of_queries_and_keys = {"": 0, "head": 2 * head_dim, "width": (heads + kv_heads) * head_dim}
    of_norms = family.norm_vectors * (family.norms * hidden + of_queries_and_keys[family.query_key_norm])
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
        attention_dropout=dropout_of(config, *ATTENTION_DROPOUTS, default=family.attention_dropout),
        linear_parameters=2 * hidden * width + 2 * hidden * kv_width + (2 + family.gated) * hidden * ffn,
        other_parameters=of_norms + sum(size for size, switch in biases if _on(config, switch)),
        norm_parameters=of_norms,
        linears=_linears(family, hidden, width, kv_width, ffn),
        parallel=family.parallel,
        norms=family.norms,
        query_key_norm=bool(family.query_key_norm),
        fused_gate=family.fused_gate,
    )
    tied = bool(config.get("tie_word_embeddings", family.tied))
    table = 0 if family.table_offset is None else (positions + family.table_offset) * hidden
    outside = family.norm_vectors * hidden * (1 + family.embedding_norm)
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
    """FalconForCausalLM: one key and value head, or groups of them with two norms side by side (40B)."""
    grouped = bool(config.get("new_decoder_architecture"))
    norms = number(config, "num_ln_in_parallel_attn", default=2 if grouped else 1)
    switch = False if grouped else "+multi_query"
    traits = replace(FAMILIES["falcon"], norms=norms, rotary=not config.get("alibi"), multi_query=switch)
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


# Families whose code comes with the model, and whose configs name sizes in a way of their own.
#
# transformers has no such model, so nothing of these formulas could be compared with a trace: `approximate` stays set.

QWEN = Traits(
    qkv_bias=True, fused_qkv=True, attention=("c_attn", "attn.c_proj"), feed=("w1", "w2", "mlp.c_proj")
)  # fmt: skip
"""The first Qwen; its later generations are in transformers (qwen2, qwen3)."""
CHATGLM = Traits(
    qkv_bias="+add_qkv_bias", fused_qkv=True, fused_gate=True, attention=("query_key_value", "self_attention.dense"),
    feed=("dense_h_to_4h", "dense_4h_to_h"),
)  # fmt: skip
"""The second and third ChatGLM."""


def read_qwen(config: Config) -> Architecture:
    """`intermediate_size` counts gate and value together."""
    width = number(config, "intermediate_size") // 2
    return replace(read_decoder({**config, "intermediate_size": width}, QWEN), approximate=True)


def read_chatglm(config: Config) -> Architecture:
    """The table has `padded_vocab_size` rows; key heads are shared where `multi_query_attention` says so."""
    groups = number(config, *(("multi_query_group_num",) if config.get("multi_query_attention") else HEADS), default=1)
    values = {**config, "vocab_size": number(config, "padded_vocab_size"), "multi_query_group_num": groups}
    return replace(read_decoder(values, CHATGLM), approximate=True)


# Decoders whose blocks are of several kinds. Counts are exact; `approximate` stays set where a part keeps tensors that the
# formulas know nothing of (the sinks of gpt-oss).

QWEN3_5 = replace(FAMILIES["qwen3"], head_dim=256, kv_heads=4, sizes={
    "hidden": 4096, "heads": 16, "layers": 32, "vocabulary": 248_320, "ffn": 12_288, "positions": 32_768,
})  # fmt: skip
GEMMA4 = replace(FAMILIES["gemma3_text"], sizes={**FAMILIES["gemma3_text"].sizes, "layers": 30, "vocabulary": 262_144})
GPT_OSS = Traits(qkv_bias="+attention_bias", out_bias="+attention_bias", kv_heads=8, head_dim=64)
FULL = "full_attention"


def read_qwen3_5(config: Config) -> Architecture:
    """Every fourth block has attention with a gate as wide as its queries; the others a gated delta rule."""
    made = read_decoder(config, QWEN3_5)
    whole, hidden = made.blocks[0], made.hidden
    interval = number(config, "full_attention_interval", default=4)
    kinds = config.get("layer_types") or [FULL if (at + 1) % interval == 0 else "" for at in range(whole.layers)]
    full_layers = list(kinds)[: whole.layers].count(FULL)
    key_heads = number(config, "linear_num_key_heads", default=16)
    heads = number(config, "linear_num_value_heads", default=32)
    head = number(config, "linear_value_head_dim", default=128)
    key = number(config, "linear_key_head_dim", default=128)
    value = heads * head
    mixed = 2 * key_heads * key + value
    kernel = number(config, "linear_conv_kernel_dim", default=4)
    names = {"in_proj_qkv": mixed, "in_proj_z": value, "in_proj_b": heads, "in_proj_a": heads}
    delta = (*((name, hidden, outputs) for name, outputs in names.items()), ("out_proj", value, hidden))
    linear = replace(
        _with(whole, (*delta, *whole.linears[4:])),
        layers=whole.layers - full_layers,
        other_parameters=2 * hidden + kernel * mixed + 2 * heads + head,
        heads=heads,
        kv_heads=heads,
        head_dim=head,
        query_key_norm=False,
        # As transformers' own delta rule keeps them (fp32, chunks of 64 tokens); fla's kernels keep less.
        state_bytes=(heads * (36 * head + 49 * key + 600), heads * (17 * head + 33 * key + 150)),
    )
    gated = ("q_proj", hidden, 2 * whole.attention_width)
    full = replace(_with(whole, (gated, *whole.linears[1:])), layers=full_layers)
    return replace(made, blocks=tuple(block for block in (linear, full) if block.layers))


def read_gemma4(config: Config) -> Architecture:
    """Wider heads in the blocks that see everything, keys of earlier blocks in the last ones, and where the config
    says so a second embedding with a part for each block."""
    made = read_decoder(config, GEMMA4)
    base, hidden = made.blocks[0], made.hidden
    kinds = config.get("layer_types") or [
        FULL if (at + 1) % 6 == 0 or at == base.layers - 1 else "" for at in range(base.layers)
    ]
    widths = [own.get("head_dim", 0) for own in (config.get("per_layer_config") or {}).values()]
    wide = number(config, "global_head_dim", default=max(widths, default=512))
    same = bool(config.get("attention_k_eq_v"))
    first_shared = base.layers - number(config, "num_kv_shared_layers", default=0)
    part = number(config, "hidden_size_per_layer_input", default=256)
    beside = (("per_layer_input_gate", hidden, part), ("per_layer_projection", part, hidden)) if part else ()
    counted = Counter((kind == FULL, at >= first_shared) for at, kind in enumerate(list(kinds)[: base.layers]))
    blocks: list[Block] = []
    for (full, shared), layers in counted.items():
        head_dim = wide if full else base.head_dim
        kv_heads = number(config, *(("num_global_key_value_heads",) if full and same else ()), default=base.kv_heads)
        ffn = base.ffn * (2 if shared and config.get("use_double_wide_mlp") else 1)
        keys = () if shared else ("k_proj",) if full and same else ("k_proj", "v_proj")
        linears = (
            ("q_proj", hidden, base.heads * head_dim),
            *((name, hidden, kv_heads * head_dim) for name in keys),
            *(("o_proj", base.heads * head_dim, hidden), ("gate_proj", hidden, ffn), ("up_proj", hidden, ffn)),
            *(("down_proj", ffn, hidden), *beside),
        )
        norms = 5 if part else 4
        other = norms * hidden + head_dim * (1 if shared else 2)
        block = replace(_with(base, linears), layers=layers, other_parameters=other, norms=norms)
        blocks.append(replace(block, head_dim=head_dim, kv_heads=kv_heads, ffn=ffn))
    table = (number(config, "vocab_size_per_layer_input", default=262_144) + hidden) * base.layers * part + part
    return replace(made, blocks=tuple(blocks), embedding_parameters=made.embedding_parameters + table)


def read_gpt_oss(config: Config) -> Architecture:
    """Experts with biases, a router with one, and a sink for each head."""
    made = read_decoder({"num_local_experts": 128, "num_experts_per_tok": 4, **config}, GPT_OSS)
    block = made.blocks[0]
    more = block.heads + block.experts * (2 * block.expert_width + block.hidden + 1)
    return replace(made, blocks=(replace(block, other_parameters=block.other_parameters + more),), approximate=True)


def _with(block: Block, linears: tuple[tuple[str, int, int], ...]) -> Block:
    return replace(block, linears=linears, linear_parameters=sum(inputs * outputs for _, inputs, outputs in linears))
