"""From a Hugging Face architecture config to an Architecture: encoders, encoder-decoders, and the choice of a reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.estimate.architecture import (
    FFN,
    HIDDEN,
    Architecture,
    Block,
    MissingKeyError,
    activation_of,
    classifying,
    dropout_of,
    number,
)
from trainwiz.core.estimate.decoders import (
    ACTIVATIONS,
    FAMILIES,
    Traits,
    first_of,
    read_chatglm,
    read_decoder,
    read_falcon,
    read_gemma4,
    read_gpt_oss,
    read_qwen,
    read_qwen3_5,
)
from trainwiz.core.language import tr

Config = Mapping[str, Any]
_BERT_LIKE = """
    bert roberta xlm-roberta xlm-roberta-xl camembert data2vec-text electra albert mpnet distilbert deberta deberta-v2 esm
"""
BERT_LIKE = frozenset(_BERT_LIKE.split())
_VOCABULARY = {"roberta": 50265, "mpnet": 30527, "deberta": 50265, "deberta-v2": 128100, "albert": 30000}
_DENSE = ("attention.output.dense", "intermediate.dense", "output.dense")
_BERT_LINEARS = ("query", "key", "value", *_DENSE)
_LINEARS = {
    "distilbert": ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
    "mpnet": ("attn.q", "attn.k", "attn.v", "attn.o", "intermediate.dense", "output.dense"),
    "albert": ("query", "key", "value", "attention.dense", "ffn", "ffn_output"),
    "deberta-v2": ("query_proj", "key_proj", "value_proj", *_DENSE),
}


BERT = Traits(
    gated=False, activation="gelu", norm="layer", norm_vectors=2, qkv_bias=True, out_bias=True, ffn_bias=True, tied=True,
    rotary=False, fp32_softmax=False, residual_dropout=0.1, attention_dropout=0.1,
)  # fmt: skip
BERT_SIZES = {"hidden": 768, "heads": 12, "layers": 12, "ffn": 3072}


def read_bert(config: Config) -> Architecture:
    """The masked-LM models of BERT_LIKE; they differ in tables, in the head, and in names."""
    family = str(config["model_type"])
    esm = family == "esm"
    names = _LINEARS.get(family, _BERT_LINEARS)
    own = {} if esm else {"vocabulary": _VOCABULARY.get(family, 30522)}
    sizes = {**BERT_SIZES, "positions": 1026 if esm else 512, **own}
    ffn_names = ("hidden_dim",) if family == "distilbert" else FFN
    traits = replace(BERT, attention=names[:4], feed=names[4:], sizes=sizes, ffn_names=ffn_names)
    made = as_encoder(read_decoder(config, traits))
    hidden, vocabulary = made.hidden, made.vocabulary
    width = number(config, "embedding_size", default=128) if family in ("electra", "albert") else hidden
    rotary = esm and config.get("position_embedding_type", "absolute") == "rotary"
    block = replace(
        made.blocks[0],
        activation="erf_unfused" if esm else made.blocks[0].activation,
        post_norm=not esm,
        rotary=rotary,
        position_bias=family in ("mpnet", "deberta", "deberta-v2"),
        shared=family == "albert",
    )
    made = replace(made, blocks=(block,), rotary=rotary)
    return replace(
        made,
        embedding_parameters=vocabulary * width + _tables(config, made, width),
        head_linear_parameters=hidden * width + (0 if made.tied else vocabulary * width),
        head_other_parameters=3 * width + vocabulary,
        max_positions=None if rotary else made.max_positions,
        embedding_temporaries=2 if esm and config.get("token_dropout") else 0,
        embedding_width=width if width != hidden else None,
        approximate=family in ("deberta", "deberta-v2", "mpnet"),
    )


def _tables(config: Config, made: Architecture, width: int) -> int:
    family, hidden, block = made.model_type, made.hidden, made.blocks[0]
    positions = made.max_positions or 0
    if family == "esm":
        # The norm after the last block, and the contact head that HF always builds.
        tables = 2 * hidden + block.layers * block.heads + 1
        tables += 2 * hidden if config.get("emb_layer_norm_before") else 0
        return tables + (0 if made.rotary else positions * hidden)
    usual = 0 if family.startswith("deberta") else 2
    types = 0 if family in ("distilbert", "mpnet") else number(config, "type_vocab_size", default=usual)
    tables = (types + 2) * width
    tables += positions * width if config.get("position_biased_input", True) else 0
    tables += width * hidden + hidden if width != hidden else 0
    if family == "mpnet":
        tables += number(config, "relative_attention_num_buckets", default=32) * block.heads
    if family == "deberta-v2" and config.get("relative_attention"):
        spans = (number(config, name, default=-1) for name in ("position_buckets", "max_relative_positions"))
        tables += 2 * next((span for span in spans if span > 0), positions) * hidden
    return tables


MODERNBERT = Traits(
    activation="gelu", norm="layer", qkv_bias="attention_bias", out_bias="attention_bias", ffn_bias="mlp_bias", tied=True,
    fused_qkv=True, fused_gate=True, fp32_softmax=False, attention=("Wqkv", "attn.Wo"), feed=("Wi", "mlp.Wo"),
    sizes={"hidden": 768, "heads": 12, "layers": 22, "vocabulary": 50368, "ffn": 1152, "positions": 8192},
)  # fmt: skip


def read_modernbert(config: Config) -> Architecture:
    """ModernBertForMaskedLM: rotary, gated, norms before. Its first block lacks the norm that its embedding has."""
    vectors = 2 if config.get("norm_bias") else 1
    architecture = as_encoder(read_decoder(config, replace(MODERNBERT, norm_vectors=vectors)))
    biases = architecture.hidden if config.get("classifier_bias") else 0
    biases += architecture.vocabulary if config.get("decoder_bias", True) else 0
    return replace(architecture, head_other_parameters=vectors * architecture.hidden + biases, approximate=True)


def as_encoder(architecture: Architecture) -> Architecture:
    hidden = architecture.hidden
    return replace(
        architecture,
        kind="encoder",
        blocks=tuple(replace(block, causal=False) for block in architecture.blocks),
        head_linear_parameters=architecture.head_linear_parameters + hidden * hidden,
        head_other_parameters=3 * hidden + architecture.vocabulary,
        transform_head=True,
    )


def _side(decoder: bool, attention: Sequence[str], feed: Sequence[str], norm_vectors: int, **sizes: Any) -> Block:
    """A block of one side of an encoder-decoder, with weights by these names; `sizes` and traits are of a Block."""
    hidden, ffn, width = sizes["hidden"], sizes["ffn"], sizes["heads"] * sizes["head_dim"]
    attentions, biases = 1 + decoder, 0 if norm_vectors == 1 else (1 + decoder) * 4 * hidden + ffn + hidden
    products = (*((name, hidden, width) for name in attention[:3]), (attention[3], width, hidden))
    return Block(
        kv_heads=sizes["heads"],
        cross_attention=decoder,
        causal=decoder,
        other_parameters=biases + (attentions + 1) * norm_vectors * hidden,
        linears=(
            *products * attentions,
            *((name, hidden, ffn) for name in feed[:-1]),
            (feed[-1], ffn, hidden),
        ),
        **sizes,
    )


def read_t5(config: Config) -> Architecture:
    """T5ForConditionalGeneration; the first block of each stack holds the position bias table."""
    hidden, heads = number(config, "d_model", default=512), number(config, "num_heads", default=8)
    encoder_layers = number(config, "num_layers", default=6)
    decoder_layers = number(config, "num_decoder_layers", default=encoder_layers)
    vocabulary = number(config, "vocab_size", default=32128)
    family = str(config["model_type"])
    projection = str(config.get("feed_forward_proj") or ("relu" if family == "t5" else "gated-gelu"))
    gated = projection.startswith("gated-")
    # transformers reads "gated-gelu" as gelu_new.
    name = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    dropout = dropout_of(config, "dropout_rate")
    encoder, decoder = (
        _side(
            decodes,
            ("q", "k", "v", "o"),
            ("wi_0", "wi_1", "wo") if gated else ("wi", "wo"),
            1,
            layers=layers,
            hidden=hidden,
            heads=heads,
            head_dim=number(config, "d_kv", default=64),
            ffn=number(config, "d_ff", default=2048),
            activation=activation_of(name, "relu"),
            gated=gated,
            norm="t5",
            position_bias=True,
            hidden_dropout=dropout,
            attention_dropout=dropout,
            ffn_dropout=dropout,
        )
        for decodes, layers in ((False, encoder_layers), (True, decoder_layers))
    )
    # transformers 5 ties T5's vocabulary projection whatever the config says.
    # UMT5 has a table of position biases in every block.
    tables = encoder_layers + decoder_layers if family == "umt5" else 2
    buckets = number(config, "relative_attention_num_buckets", default=32)
    return Architecture(
        model_type=family,
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(encoder, decoder),
        embedding_parameters=vocabulary * hidden + 2 * hidden + tables * buckets * heads,
    )


@dataclass(frozen=True, slots=True)
class BartTraits:
    """What sets one family of BART's kin apart. The defaults are BART's."""

    vocabulary: int = 50265
    activation: str = "gelu"
    attention_dropout: float = 0.0
    post_norm: bool = False
    """Norms follow the sums; otherwise each stack ends with a norm."""
    embedding_norm: bool = False
    table_offset: int | None = None
    """A position table for each stack, with this many rows more than positions; None: computed, no parameters."""
    frozen_tables: bool = False
    tied: bool = True


BART_LIKE: dict[str, BartTraits] = {
    "m2m_100": BartTraits(vocabulary=128112, activation="relu", attention_dropout=0.1),
    "marian": BartTraits(vocabulary=58101, post_norm=True, table_offset=0, frozen_tables=True),
    "bart": BartTraits(post_norm=True, embedding_norm=True, table_offset=2),
    "mbart": BartTraits(embedding_norm=True, table_offset=2),
}


def read_bart_like(config: Config) -> Architecture:
    """The translation and summary models of BART_LIKE; any other is read as BART, which keeps the sizes about right."""
    family = str(config["model_type"])
    traits = BART_LIKE.get(family, BART_LIKE["bart"])
    hidden = number(config, *HIDDEN, default=1024)
    vocabulary = number(config, "vocab_size", default=traits.vocabulary)
    positions = number(config, "max_position_embeddings", default=1024)

    def block(side: str) -> Block:
        heads = number(config, f"{side}_attention_heads", "num_attention_heads", default=16)
        return _side(
            side == "decoder",
            ("k_proj", "v_proj", "q_proj", "out_proj"),
            ("fc1", "fc2"),
            2,
            layers=number(config, f"{side}_layers", f"num_{side}_layers", "num_hidden_layers", default=12),
            hidden=hidden,
            heads=heads,
            head_dim=hidden // heads,
            ffn=number(config, f"{side}_ffn_dim", "intermediate_size", default=4096),
            activation=activation_of(config.get("activation_function"), traits.activation),
            post_norm=traits.post_norm,
            hidden_dropout=dropout_of(config, "dropout"),
            attention_dropout=dropout_of(config, "attention_dropout", default=traits.attention_dropout),
            ffn_dropout=dropout_of(config, "activation_dropout", default=0.0),
        )

    tied = bool(config.get("tie_word_embeddings", traits.tied))
    tables = 0 if traits.table_offset is None else 2 * (positions + traits.table_offset) * hidden
    norms = 4 * hidden * ((not traits.post_norm) + traits.embedding_norm)
    return Architecture(
        model_type=family,
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block("encoder"), block("decoder")),
        embedding_parameters=vocabulary * hidden + tables + norms,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        tied=tied,
        frozen_parameters=tables if traits.frozen_tables else 0,
        max_positions=None if traits.table_offset is None else positions,
    )


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


def read_architecture(config: Config, task: str = "") -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, the reason in one sentence). Never raises for a bad config.

    A model type without a reader of its own is read by common keys: `approximate` is set then. With
    `task` of classification the head is a classifier.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None, tr("the model config has no model_type")
    # Gemma 4's experts are read by common keys.
    reader = read_generic if config.get("enable_moe_block") else _READERS.get(model_type, read_generic)
    try:
        architecture = reader(config)
        if task in CLASSIFIES:
            architecture = classifying(architecture, config, pooled=task == "sequence-classification")
    except MissingKeyError as missing:
        if is_guessed(model_type):
            return None, tr(
                "the model type {model_type} is unknown to the estimator, and its config has no {missing}",
                model_type=repr(model_type),
                missing=missing,
            )
        return None, tr("the {model_type} config has no {missing}", model_type=model_type, missing=missing)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError):
        return None, tr("the {model_type} config has inconsistent values", model_type=model_type)
    if architecture.kind == "encoder-decoder" and config.get("num_experts"):
        return None, tr("the estimator does not know {model_type} models with experts", model_type=model_type)
    sizes = (size for b in architecture.blocks for size in (b.layers, b.heads, b.kv_heads, b.head_dim, b.ffn))
    if min(architecture.vocabulary, architecture.hidden, *sizes) < 1:
        return None, tr("the {model_type} config contains a size below 1", model_type=model_type)
    return architecture, ""


def is_guessed(model_type: str) -> bool:
    """Read by common keys: the names of its modules are guesses."""
    return model_type not in _READERS


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
