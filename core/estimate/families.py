"""From a Hugging Face architecture config to an Architecture, one reader for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from trainwiz.core.estimate.architecture import HEADS, Architecture, MissingKeyError, classifying, number
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

# The reader for model types without one of their own: sizes by the names that configs commonly have.

_INNER = ("text_config", "language_config", "llm_config", "decoder")
"""Where a model of several parts keeps the config of its text part."""


def read_generic(config: Config) -> Architecture:
    """Any transformer, with `approximate` set; MissingKeyError where a size is nowhere."""
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
    """The table has `padded_vocab_size` rows; key heads are shared where `multi_query_attention` says so.

    The first ChatGLM, which knows none of these keys, was another kind of model.
    """
    if config.get("padded_vocab_size") is None:
        return read_generic(config)
    shared = bool(config.get("multi_query_attention"))
    groups = number(config, "multi_query_group_num", default=1) if shared else number(config, *HEADS)
    values = {**config, "vocab_size": number(config, "padded_vocab_size"), "multi_query_group_num": groups}
    return replace(read_decoder(values, CHATGLM), approximate=True)


# From a Hugging Face architecture config (a plain dict) to an Architecture, one reader for each family.


def read_architecture(config: Config, task: str = "") -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, the reason in one sentence). Never raises for a bad config.

    A model type without a reader of its own is read by common keys: `approximate` is set then. With
    `task` "sequence-classification" the head is a classifier.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None, tr("the model config has no model_type")
    reader = _READERS.get(model_type, read_generic)
    try:
        architecture = reader(config)
        if task == "sequence-classification":
            architecture = classifying(architecture, config)
    except MissingKeyError as missing:
        if model_type not in _READERS:
            return None, tr(
                "the model type {model_type} is not known to the estimator, and its config has no {missing}",
                model_type=repr(model_type),
                missing=missing,
            )
        return None, tr("the {model_type} config has no {missing}", model_type=model_type, missing=missing)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError):
        return None, tr("the {model_type} config has values that do not go together", model_type=model_type)
    sizes = (size for b in architecture.blocks for size in (b.layers, b.heads, b.kv_heads, b.head_dim, b.ffn))
    if min(architecture.vocabulary, architecture.hidden, *sizes) < 1:
        return None, tr("the {model_type} config has a size below 1", model_type=model_type)
    return architecture, ""


_READERS: dict[str, Callable[[Config], Architecture]] = {
    **dict.fromkeys(BERT_LIKE, read_bert),
    "modernbert": read_modernbert,
    **dict.fromkeys(FAMILIES, read_decoder),
    "falcon": read_falcon,
    **dict.fromkeys(("t5", "mt5", "umt5"), read_t5),
    **dict.fromkeys(BART_LIKE, read_bart_like),
    "qwen": read_qwen,
    "chatglm": read_chatglm,
}
