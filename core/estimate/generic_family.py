"""The reader for model types without one of their own: sizes by the names that configs commonly have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.decoder_families import read_decoder
from trainwiz.core.estimate.decoder_traits import Traits
from trainwiz.core.estimate.seq2seq_families import read_bart_like, read_t5

Config = Mapping[str, Any]
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
            architecture = _encoder(architecture)
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
    names = ("hidden_activation", "hidden_act", "activation_function", "activation")
    activation = next((str(config[name]) for name in names if config.get(name) is not None), "silu" if rms else "gelu")
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
        ffn=4 if not gated else 3,
        table_offset=offset,
        rotary=rotary,
    )


def _bias(config: Config, *names: str) -> bool:
    return any(bool(config.get(name)) for name in names)


def _encoder(architecture: Architecture) -> Architecture:
    """The same blocks without a causal mask, under the head of a masked LM."""
    hidden = architecture.hidden
    return replace(
        architecture,
        kind="encoder",
        blocks=tuple(replace(block, causal=False) for block in architecture.blocks),
        head_linear_parameters=architecture.head_linear_parameters + hidden * hidden,
        head_other_parameters=3 * hidden + architecture.vocabulary,
        transform_head=True,
    )
