"""From a Hugging Face architecture config (a plain dict) to an Architecture, one reader for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.config_keys import MissingKeyError, activation_of, dropout_of, number
from trainwiz.core.estimate.seq2seq_families import read_bart_like, read_t5

Config = Mapping[str, Any]


def read_architecture(config: Config) -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, the reason in one sentence). Never raises for a bad config."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None, "the model config has no model_type"
    reader = _READERS.get(model_type)
    if reader is None:
        return None, f"the model type {model_type!r} is not known to the estimator ({', '.join(sorted(_READERS))} are)"
    try:
        architecture = reader(config)
    except MissingKeyError as missing:
        return None, f"the {model_type} config has no {missing.args[0]}"
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None, f"the {model_type} config has values that do not go together"
    if min(architecture.vocabulary, architecture.hidden, *(b.layers for b in architecture.blocks)) < 1:
        return None, f"the {model_type} config has a size below 1"
    return architecture, ""


def _bert(config: Config, esm: bool = False) -> Architecture:
    """EsmForMaskedLM and BertForMaskedLM."""
    hidden = number(config, "hidden_size", default=768)
    layers = number(config, "num_hidden_layers", default=12)
    heads = number(config, "num_attention_heads", default=12)
    ffn = number(config, "intermediate_size", default=3072)
    vocabulary = number(config, "vocab_size", default=None if esm else 30522)
    positions = number(config, "max_position_embeddings", default=1026 if esm else 512)
    rotary = esm and config.get("position_embedding_type", "absolute") == "rotary"
    linears = (
        ("query", hidden, hidden),
        ("key", hidden, hidden),
        ("value", hidden, hidden),
        ("attention.output.dense", hidden, hidden),
        ("intermediate.dense", hidden, ffn),
        ("output.dense", ffn, hidden),
    )
    block = Block(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=ffn,
        activation="erf_unfused" if esm else activation_of(config.get("hidden_act")),
        post_norm=not esm,
        rotary=rotary,
        hidden_dropout=dropout_of(config, "hidden_dropout_prob"),
        attention_dropout=dropout_of(config, "attention_probs_dropout_prob"),
        linear_parameters=4 * hidden * hidden + 2 * hidden * ffn,
        other_parameters=4 * hidden + ffn + hidden + 4 * hidden,
        linears=linears,
    )
    embeddings = vocabulary * hidden
    if esm:
        embeddings += 0 if rotary else positions * hidden
        embeddings += 2 * hidden if config.get("emb_layer_norm_before") else 0
        # The norm after the last block, and the contact head that HF always builds.
        embeddings += 2 * hidden + layers * heads + 1
    else:
        embeddings += (positions + number(config, "type_vocab_size", default=2) + 2) * hidden
    tied = bool(config.get("tie_word_embeddings", True))
    return Architecture(
        model_type=str(config["model_type"]),
        kind="encoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block,),
        embedding_parameters=embeddings,
        head_linear_parameters=hidden * hidden + (0 if tied else vocabulary * hidden),
        head_other_parameters=3 * hidden + vocabulary,
        tied=tied,
        transform_head=True,
        max_positions=None if rotary else positions,
        rotary=rotary,
        embedding_temporaries=2 if esm and config.get("token_dropout") else 0,
    )


def _esm(config: Config) -> Architecture:
    return _bert(config, esm=True)


def _gpt2(config: Config) -> Architecture:
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


def _llama(config: Config) -> Architecture:
    """LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM: they differ in biases."""
    model_type = str(config["model_type"])
    hidden = number(config, "hidden_size")
    heads = number(config, "num_attention_heads")
    layers = number(config, "num_hidden_layers")
    ffn = number(config, "intermediate_size")
    vocabulary = number(config, "vocab_size")
    kv_heads = number(config, "num_key_value_heads", default=8 if model_type == "mistral" else heads)
    head_dim = number(config, "head_dim", default=hidden // heads)
    width, kv_width = heads * head_dim, kv_heads * head_dim
    biases = 0
    if model_type == "qwen2":
        biases += width + 2 * kv_width
    elif model_type == "llama" and config.get("attention_bias"):
        biases += width + 2 * kv_width + hidden
    if model_type == "llama" and config.get("mlp_bias"):
        biases += 2 * ffn + hidden
    block = Block(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        activation=activation_of(config.get("hidden_act"), "silu"),
        gated=True,
        causal=True,
        norm="rms",
        rotary=True,
        fp32_softmax=True,
        attention_dropout=dropout_of(config, "attention_dropout", default=0.0),
        linear_parameters=2 * hidden * width + 2 * hidden * kv_width + 3 * hidden * ffn,
        other_parameters=biases + 2 * hidden,
        linears=(
            ("q_proj", hidden, width),
            ("k_proj", hidden, kv_width),
            ("v_proj", hidden, kv_width),
            ("o_proj", width, hidden),
            ("gate_proj", hidden, ffn),
            ("up_proj", hidden, ffn),
            ("down_proj", ffn, hidden),
        ),
    )
    tied = bool(config.get("tie_word_embeddings", False))
    return Architecture(
        model_type=model_type,
        kind="decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block,),
        embedding_parameters=vocabulary * hidden + hidden,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        max_positions=number(config, "max_position_embeddings", default=2048),
        rotary=True,
    )


def _gpt_neox(config: Config) -> Architecture:
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


_READERS: dict[str, Callable[[Config], Architecture]] = {
    "esm": _esm,
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "gpt_neox": _gpt_neox,
    "t5": read_t5,
    "m2m_100": read_bart_like,
    "marian": read_bart_like,
}
