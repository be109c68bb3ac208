"""Readers of GPT-2, GPT-BigCode, GPT-NeoX and Falcon configs: one matrix product makes queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.config_keys import activation_of, dropout_of, number

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
