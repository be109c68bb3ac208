"""Readers of encoder-decoder configs: T5, M2M100 (NLLB) and Marian (opus-mt)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.config_keys import activation_of, dropout_of, number

Config = Mapping[str, Any]


def read_t5(config: Config) -> Architecture:
    """T5ForConditionalGeneration; the first block of each stack holds the position bias table."""
    hidden = number(config, "d_model", default=512)
    head_dim = number(config, "d_kv", default=64)
    ffn = number(config, "d_ff", default=2048)
    heads = number(config, "num_heads", default=8)
    encoder_layers = number(config, "num_layers", default=6)
    decoder_layers = number(config, "num_decoder_layers", default=encoder_layers)
    vocabulary = number(config, "vocab_size", default=32128)
    projection = str(config.get("feed_forward_proj") or "relu")
    gated = projection.startswith("gated-")
    # transformers reads "gated-gelu" as gelu_new.
    name = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    width = heads * head_dim
    dropout = dropout_of(config, "dropout_rate")

    def block(layers: int, decoder: bool) -> Block:
        attentions = 2 if decoder else 1
        attention = tuple(
            pair for pair in (("q", hidden, width), ("k", hidden, width), ("v", hidden, width), ("o", width, hidden))
        )
        feed = (("wi_0", hidden, ffn), ("wi_1", hidden, ffn)) if gated else (("wi", hidden, ffn),)
        return Block(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            ffn=ffn,
            activation=activation_of(name, "relu"),
            gated=gated,
            cross_attention=decoder,
            causal=decoder,
            norm="t5",
            position_bias=True,
            hidden_dropout=dropout,
            attention_dropout=dropout,
            ffn_dropout=dropout,
            linear_parameters=attentions * 4 * hidden * width + (3 if gated else 2) * hidden * ffn,
            other_parameters=(attentions + 1) * hidden,
            linears=attention * attentions + feed + (("wo", ffn, hidden),),
        )

    # transformers 5 ties T5's vocabulary projection whatever the config says.
    buckets = number(config, "relative_attention_num_buckets", default=32)
    return Architecture(
        model_type=str(config["model_type"]),
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block(encoder_layers, False), block(decoder_layers, True)),
        embedding_parameters=vocabulary * hidden + 2 * hidden + 2 * buckets * heads,
        head_linear_parameters=0,
        head_other_parameters=0,
        tied=True,
    )


def read_bart_like(config: Config) -> Architecture:
    """M2M100ForConditionalGeneration (norms before, one after each stack) and MarianMTModel (norms after)."""
    marian = config["model_type"] == "marian"
    hidden = number(config, "d_model", default=1024)
    vocabulary = number(config, "vocab_size", default=58101 if marian else 128112)
    positions = number(config, "max_position_embeddings", default=1024)

    def block(side: str) -> Block:
        decoder = side == "decoder"
        heads = number(config, f"{side}_attention_heads", default=16)
        ffn = number(config, f"{side}_ffn_dim", default=4096)
        attentions = 2 if decoder else 1
        attention = tuple((name, hidden, hidden) for name in ("k_proj", "v_proj", "q_proj", "out_proj"))
        return Block(
            layers=number(config, f"{side}_layers", default=12),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            ffn=ffn,
            activation=activation_of(config.get("activation_function"), "gelu" if marian else "relu"),
            cross_attention=decoder,
            causal=decoder,
            post_norm=marian,
            hidden_dropout=dropout_of(config, "dropout"),
            attention_dropout=dropout_of(config, "attention_dropout", default=0.0 if marian else 0.1),
            ffn_dropout=dropout_of(config, "activation_dropout", default=0.0),
            linear_parameters=attentions * 4 * hidden * hidden + 2 * hidden * ffn,
            other_parameters=attentions * 4 * hidden + ffn + hidden + (attentions + 1) * 2 * hidden,
            linears=attention * attentions + (("fc1", hidden, ffn), ("fc2", ffn, hidden)),
        )

    tied = bool(config.get("tie_word_embeddings", True))
    # Marian keeps its sinusoidal position tables as parameters, one for each stack; M2M100 as buffers.
    tables = 2 * positions * hidden if marian else 0
    return Architecture(
        model_type=str(config["model_type"]),
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(block("encoder"), block("decoder")),
        embedding_parameters=vocabulary * hidden + tables + (0 if marian else 4 * hidden),
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        frozen_parameters=tables,
        max_positions=positions if marian else None,
    )
