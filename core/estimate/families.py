"""From a Hugging Face architecture config to an Architecture, one reader for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from trainwiz.core.estimate.architecture import (
    HEADS,
    Architecture,
    Block,
    MissingKeyError,
    activation_of,
    classifying,
    dropout_of,
    number,
)
from trainwiz.core.estimate.decoders import FAMILIES, Traits, read_decoder
from trainwiz.core.estimate.encoders import BART_LIKE, BERT_LIKE, read_bart_like, read_bert, read_modernbert, read_t5
from trainwiz.core.language import tr

# Readers of GPT-2, GPT-BigCode, GPT-NeoX and Falcon configs: one matrix product makes queries, keys and values.

Config = Mapping[str, Any]


def read_gpt2(config: Config) -> Architecture:
    """GPT2LMHeadModel and GPTBigCodeForCausalLM (one key and value head with `multi_query`)."""
    bigcode = config["model_type"] == "gpt_bigcode"
    hidden = number(config, "n_embd", "hidden_size", default=768)
    heads = number(config, "n_head", "num_attention_heads", default=12)
    layers = number(config, "n_layer", "num_hidden_layers", default=12)
    ffn = number(config, "n_inner", default=4 * hidden)
    vocabulary = number(config, "vocab_size", default=50257)
    positions = number(config, "n_positions", "max_position_embeddings", default=1024)
    head_dim = hidden // heads
    kv_heads = 1 if bigcode and config.get("multi_query", True) else heads
    fused = hidden + 2 * kv_heads * head_dim
    default_activation = "gelu_pytorch_tanh" if bigcode else "gelu_new"
    block = Block(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        activation=activation_of(config.get("activation_function"), default_activation),
        causal=True,
        fused_qkv=True,
        fp32_softmax=bigcode,
        hidden_dropout=dropout_of(config, "resid_pdrop"),
        attention_dropout=dropout_of(config, "attn_pdrop"),
        linear_parameters=hidden * fused + hidden * hidden + 2 * hidden * ffn,
        other_parameters=fused + hidden + ffn + hidden + 4 * hidden,
        linears=(
            ("c_attn", hidden, fused),
            ("attn.c_proj", hidden, hidden),
            ("c_fc", hidden, ffn),
            ("mlp.c_proj", ffn, hidden),
        ),
    )
    tied = bool(config.get("tie_word_embeddings", True))
    return Architecture(
        model_type=str(config["model_type"]),
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block,),
        embedding_parameters=(vocabulary + positions + 2) * hidden,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        max_positions=positions,
    )


def read_gpt_neox(config: Config) -> Architecture:
    """GPTNeoXForCausalLM (Pythia)."""
    hidden = number(config, "hidden_size")
    heads = number(config, "num_attention_heads")
    layers = number(config, "num_hidden_layers")
    ffn = number(config, "intermediate_size", default=4 * hidden)
    vocabulary = number(config, "vocab_size")
    biases = 4 * hidden if config.get("attention_bias", True) else 0
    block = Block(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=ffn,
        activation=activation_of(config.get("hidden_act")),
        causal=True,
        rotary=True,
        fp32_softmax=True,
        fused_qkv=True,
        hidden_dropout=dropout_of(config, "hidden_dropout", default=0.0),
        attention_dropout=dropout_of(config, "attention_dropout", default=0.0),
        linear_parameters=4 * hidden * hidden + 2 * hidden * ffn,
        other_parameters=biases + ffn + hidden + 4 * hidden,
        linears=(
            ("query_key_value", hidden, 3 * hidden),
            ("attention.dense", hidden, hidden),
            ("dense_h_to_4h", hidden, ffn),
            ("dense_4h_to_h", ffn, hidden),
        ),
    )
    tied = bool(config.get("tie_word_embeddings", False))
    return Architecture(
        model_type="gpt_neox",
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block,),
        embedding_parameters=vocabulary * hidden + 2 * hidden,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        max_positions=number(config, "max_position_embeddings", default=2048),
        rotary=True,
    )


def read_falcon(config: Config) -> Architecture:
    """FalconForCausalLM: one key and value head, or groups of them, and no bias unless the config says so."""
    hidden = number(config, "hidden_size", default=4544)
    heads = number(config, "num_attention_heads", "n_head", default=71)
    layers = number(config, "num_hidden_layers", "n_layer", default=32)
    ffn = number(config, "ffn_hidden_size", default=4 * hidden)
    vocabulary = number(config, "vocab_size", default=65024)
    grouped = bool(config.get("new_decoder_architecture", False))
    kv_heads = number(config, "num_kv_heads", default=heads)
    if not grouped:
        kv_heads = 1 if config.get("multi_query", True) else heads
    head_dim = hidden // heads
    fused = hidden + 2 * kv_heads * head_dim
    parallel = grouped or bool(config.get("parallel_attn", True))
    norms = number(config, "num_ln_in_parallel_attn", default=2 if grouped else 1) if parallel else 2
    biases = fused + hidden + ffn + hidden if config.get("bias") else 0
    block = Block(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        activation=activation_of(config.get("activation")),
        causal=True,
        rotary=not config.get("alibi"),
        fused_qkv=True,
        hidden_dropout=dropout_of(config, "hidden_dropout", default=0.0),
        attention_dropout=dropout_of(config, "attention_dropout", default=0.0),
        linear_parameters=hidden * fused + hidden * hidden + 2 * hidden * ffn,
        other_parameters=biases + 2 * norms * hidden,
        linears=(
            ("query_key_value", hidden, fused),
            ("self_attention.dense", hidden, hidden),
            ("dense_h_to_4h", hidden, ffn),
            ("dense_4h_to_h", ffn, hidden),
        ),
        parallel=parallel,
        norms=norms,
    )
    tied = bool(config.get("tie_word_embeddings", True))
    return Architecture(
        model_type="falcon",
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block,),
        embedding_parameters=vocabulary * hidden + 2 * hidden,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        max_positions=number(config, "max_position_embeddings", default=2048),
        rotary=not config.get("alibi"),
    )


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
    "gpt2": read_gpt2,
    "gpt_bigcode": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "falcon": read_falcon,
    **dict.fromkeys(FAMILIES, read_decoder),
    **dict.fromkeys(("t5", "mt5", "umt5"), read_t5),
    **dict.fromkeys(BART_LIKE, read_bart_like),
    "qwen": read_qwen,
    "chatglm": read_chatglm,
}
