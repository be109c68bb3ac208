"""From a Hugging Face architecture config to an Architecture, one reader for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.estimate.architecture import HEADS, Architecture, Block, MissingKeyError, classifying, number
from trainwiz.core.estimate.decoders import ACTIVATIONS, FAMILIES, Traits, first_of, read_decoder, read_falcon
from trainwiz.core.estimate.encoders import (
    BART_LIKE,
    BERT_LIKE,
    as_encoder,
    read_bart_like,
    read_bert,
    read_modernbert,
    read_t5,
)
from trainwiz.core.language import tr

Config = Mapping[str, Any]

_INNER = ("text_config", "language_config", "llm_config", "decoder")
"""Where a model of several parts keeps the config of its text part."""


def read_generic(config: Config) -> Architecture:
    if config.get("vocab_size") is None:
        for name in _INNER:
            inner = config.get(name)
            if isinstance(inner, Mapping):
                return read_generic({"model_type": config["model_type"], **inner})
    kind = _kind(config)
    if kind == "encoder-decoder":
        relative = config.get("relative_attention_num_buckets") is not None or config.get("d_kv") is not None
        architecture = read_t5(config) if relative else read_bart_like(config)
    else:
        architecture = read_decoder(config, _traits(config, kind))
        if kind == "encoder":
            architecture = as_encoder(architecture)
    return replace(architecture, approximate=True)


def _kind(config: Config) -> Literal["encoder", "decoder", "encoder-decoder"]:
    named = " ".join(map(str, config.get("architectures") or ()))
    if config.get("is_encoder_decoder") or (config.get("encoder_layers") and config.get("decoder_layers")):
        return "encoder-decoder"
    if "ForConditionalGeneration" in named and config.get("num_decoder_layers"):
        return "encoder-decoder"
    if "ForMaskedLM" in named or (
        "Causal" not in named and "LMHead" not in named and "bert" in str(config["model_type"])
    ):
        return "encoder"
    return "decoder"


def _traits(config: Config, kind: str) -> Traits:
    """What the keys give away: the kind of norm, gates, biases, positions."""
    plain = any("layer_norm" in key or "layernorm" in key or key == "n_embd" for key in config)
    # A decoder that says nothing of its norms is most likely one of Llama's many kin.
    rms = config.get("rms_norm_eps") is not None or (kind == "decoder" and not plain)
    named = first_of(config, *ACTIVATIONS)
    activation = ("silu" if rms else "gelu") if named is None else str(named)
    gated = activation in ("silu", "swish", "swiglu", "geglu") or (rms and "gelu" in activation)
    rotary = any("rope" in key or "rotary" in key for key in config) or rms
    biased = not rms and kind != "decoder"
    offset = None if rotary or config.get("alibi") else 0
    return Traits(
        gated=gated,
        activation=activation,
        norm="rms" if rms else "layer",
        norm_vectors=1 if rms else 2,
        query_key_norm="head" if config.get("use_qk_norm") or config.get("qk_norm") else "",
        qkv_bias=True if biased else _bias(config, "attention_bias", "qkv_bias", "use_qkv_bias", "bias", "use_bias"),
        out_bias=True if biased else _bias(config, "attention_bias", "bias", "use_bias"),
        ffn_bias=True if biased else _bias(config, "mlp_bias", "bias", "use_bias"),
        tied=kind == "encoder",
        feed=("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj"),
        ffn=4 if not gated else 3,
        table_offset=offset,
        rotary=rotary,
    )


def _bias(config: Config, *names: str) -> bool:
    return any(bool(config.get(name)) for name in names)


# Readers of families whose code comes with the model, and whose configs name sizes in a way of their own.
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
    if config.get("padded_vocab_size") is None:
        return read_generic(config)
    shared = bool(config.get("multi_query_attention"))
    groups = number(config, "multi_query_group_num", default=1) if shared else number(config, *HEADS)
    values = {**config, "vocab_size": number(config, "padded_vocab_size"), "multi_query_group_num": groups}
    return replace(read_decoder(values, CHATGLM), approximate=True)


# Readers of decoders whose blocks are of several kinds. Counts are exact; `approximate` stays set where a part keeps
# tensors that the formulas know nothing of (the sinks of gpt-oss).

QWEN3_5 = replace(FAMILIES["qwen3"], head_dim=256, kv_heads=4, sizes={
    "hidden": 4096, "heads": 16, "layers": 32, "vocabulary": 248_320, "ffn": 12_288, "positions": 32_768,
})  # fmt: skip
GEMMA4 = replace(FAMILIES["gemma3_text"], sizes={**FAMILIES["gemma3_text"].sizes, "layers": 30, "vocabulary": 262_144})
GPT_OSS = Traits(qkv_bias="+attention_bias", out_bias="+attention_bias", kv_heads=8, head_dim=64)
FULL = "full_attention"


def read_qwen3_5(config: Config) -> Architecture:
    """Every fourth block has attention with a gate as wide as its queries; the others a gated delta rule."""
    made = read_decoder(config, QWEN3_5)
    whole = made.blocks[0]
    kinds = _kinds(config, whole.layers, 4, "full_attention_interval")
    hidden, feed = whole.hidden, whole.linears[4:]
    gated = ("q_proj", hidden, 2 * whole.attention_width)
    key_heads = number(config, "linear_num_key_heads", default=16)
    heads = number(config, "linear_num_value_heads", default=32)
    head = number(config, "linear_value_head_dim", default=128)
    value = heads * head
    key = number(config, "linear_key_head_dim", default=128)
    mixed = 2 * key_heads * key + value
    kernel = number(config, "linear_conv_kernel_dim", default=4)
    delta = (
        *(("in_proj_qkv", hidden, mixed), ("in_proj_z", hidden, value), ("in_proj_b", hidden, heads)),
        *(("in_proj_a", hidden, heads), ("out_proj", value, hidden)),
    )
    linear = replace(
        _with(whole, (*delta, *feed), 2 * hidden + kernel * mixed + 2 * heads + head, kinds.count("linear_attention")),
        heads=heads,
        kv_heads=heads,
        head_dim=head,
        query_key_norm=False,
        # As transformers' own delta rule keeps them (fp32, chunks of 64 tokens); fla's kernels keep less.
        state_bytes=(heads * (36 * head + 49 * key + 600), heads * (17 * head + 33 * key + 150)),
    )
    full = _with(whole, (gated, *whole.linears[1:]), whole.other_parameters, kinds.count(FULL))
    return replace(made, blocks=tuple(block for block in (linear, full) if block.layers))


def read_gemma4(config: Config) -> Architecture:
    """Wider heads in the blocks that see everything, keys of earlier blocks in the last ones, and where the config
    says so a second embedding with a part for each block."""
    if config.get("enable_moe_block"):
        return read_generic(config)
    made = read_decoder(config, GEMMA4)
    base, hidden = made.blocks[0], made.hidden
    kinds = _kinds(config, base.layers, 6)
    first_shared = base.layers - number(config, "num_kv_shared_layers", default=0)
    part = number(config, "hidden_size_per_layer_input", default=256)
    own = {int(index): said for index, said in (config.get("per_layer_config") or {}).items()}
    counted: dict[Block, int] = {}
    for index, kind in enumerate(kinds):
        said = own.get(index, {})
        wide = {"head_dim": number(config, "global_head_dim", default=512)} if kind == FULL and not own else {}
        few = config.get("num_global_key_value_heads") if kind == FULL and config.get("attention_k_eq_v") else None
        head_dim = number({**wide, **said}, "head_dim", default=base.head_dim)
        kv_heads = number(said, "num_key_value_heads", default=few or base.kv_heads)
        shared, same = index >= first_shared, kind == FULL and bool(config.get("attention_k_eq_v"))
        ffn = base.ffn * (2 if shared and config.get("use_double_wide_mlp") else 1)
        keys = ("k_proj",) if same else ("k_proj", "v_proj")
        linears = [("q_proj", hidden, base.heads * head_dim)]
        linears += [] if shared else [(name, hidden, kv_heads * head_dim) for name in keys]
        linears += [("o_proj", base.heads * head_dim, hidden), ("gate_proj", hidden, ffn), ("up_proj", hidden, ffn)]
        linears += [("down_proj", ffn, hidden)]
        if part:
            linears += [("per_layer_input_gate", hidden, part), ("per_layer_projection", part, hidden)]
        norms = 5 if part else 4
        block = _with(base, tuple(linears), norms * hidden + head_dim * (1 if shared else 2), 1)
        block = replace(block, head_dim=head_dim, kv_heads=kv_heads, ffn=ffn, norms=norms)
        counted[block] = counted.get(block, 0) + 1
    parts = base.layers * part
    table = number(config, "vocab_size_per_layer_input", default=262_144) * parts + hidden * parts + part
    return replace(
        made,
        blocks=tuple(replace(block, layers=layers) for block, layers in counted.items()),
        embedding_parameters=made.embedding_parameters + table,
    )


def read_gpt_oss(config: Config) -> Architecture:
    """Experts with biases, a router with one, and a sink for each head."""
    made = read_decoder({"num_local_experts": 128, "num_experts_per_tok": 4, **config}, GPT_OSS)
    block = made.blocks[0]
    more = block.heads + block.experts * (2 * block.expert_width + block.hidden + 1)
    return replace(made, blocks=(replace(block, other_parameters=block.other_parameters + more),), approximate=True)


def _kinds(config: Config, layers: int, interval: int, *names: str) -> list[str]:
    """The kind of each block; where the config does not say, every `interval`-th one sees everything."""
    said = config.get("layer_types")
    if said:
        return [str(kind) for kind in said][:layers]
    interval = number(config, *names, default=interval) if names else interval
    other = "linear_attention" if names else "sliding_attention"
    kinds = [other if (index + 1) % interval else FULL for index in range(layers)]
    return kinds if names else [*kinds[:-1], FULL]


def _with(block: Block, linears: tuple[tuple[str, int, int], ...], other: int, layers: int) -> Block:
    sizes = sum(inputs * outputs for _, inputs, outputs in linears)
    return replace(block, layers=layers, linears=linears, linear_parameters=sizes, other_parameters=other)


def read_architecture(config: Config, task: str = "") -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, the reason in one sentence). Never raises for a bad config.

    A model type without a reader of its own is read by common keys: `approximate` is set then. With
    `task` of classification the head is a classifier.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None, tr("the model config has no model_type")
    reader = _READERS.get(model_type, read_generic)
    try:
        architecture = reader(config)
        if task in CLASSIFIES:
            architecture = classifying(architecture, config, pooled=task == "sequence-classification")
    except MissingKeyError as missing:
        if model_type not in _READERS:
            return None, tr(
                "the model type {model_type} is unknown to the estimator, and its config has no {missing}",
                model_type=repr(model_type),
                missing=missing,
            )
        return None, tr("the {model_type} config has no {missing}", model_type=model_type, missing=missing)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError):
        return None, tr("the {model_type} config has inconsistent values", model_type=model_type)
    sizes = (size for b in architecture.blocks for size in (b.layers, b.heads, b.kv_heads, b.head_dim, b.ffn))
    if min(architecture.vocabulary, architecture.hidden, *sizes) < 1:
        return None, tr("the {model_type} config contains a size below 1", model_type=model_type)
    return architecture, ""


_READERS: dict[str, Callable[[Config], Architecture]] = {
    **dict.fromkeys(BERT_LIKE, read_bert),
    "modernbert": read_modernbert,
    **dict.fromkeys(FAMILIES, read_decoder),
    "falcon": read_falcon,
    **dict.fromkeys(("t5", "mt5", "umt5"), read_t5),
    **dict.fromkeys(BART_LIKE, read_bart_like),
    "qwen": read_qwen,
    "qwen3_5_text": read_qwen3_5,
    "gemma4_text": read_gemma4,
    "gpt_oss": read_gpt_oss,
    "chatglm": read_chatglm,
}
