"""Readers of encoder-decoder configs: T5 and its kin, and BART's (M2M100, Marian, mBART, Pegasus, Blenderbot)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.estimate.architecture import Architecture, Block
from trainwiz.core.estimate.config_keys import HIDDEN, activation_of, dropout_of, number
from trainwiz.core.estimate.experts import expert_blocks

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
    family = str(config["model_type"])
    projection = str(config.get("feed_forward_proj") or ("relu" if family == "t5" else "gated-gelu"))
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
    # UMT5 has a table of position biases in every block.
    tables = encoder_layers + decoder_layers if family == "umt5" else 2
    buckets = number(config, "relative_attention_num_buckets", default=32)
    return Architecture(
        model_type=family,
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(
            *_with_experts(config, block(encoder_layers, False)),
            *_with_experts(config, block(decoder_layers, True)),
        ),
        embedding_parameters=vocabulary * hidden + 2 * hidden + tables * buckets * heads,
        head_linear_parameters=0,
        head_other_parameters=0,
        tied=True,
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
    "nllb-moe": BartTraits(vocabulary=128112, activation="relu", attention_dropout=0.1),
    "marian": BartTraits(vocabulary=58101, post_norm=True, table_offset=0, frozen_tables=True),
    "pegasus": BartTraits(table_offset=0, frozen_tables=True),
    "bart": BartTraits(post_norm=True, embedding_norm=True, table_offset=2),
    "mbart": BartTraits(embedding_norm=True, table_offset=2),
    "plbart": BartTraits(vocabulary=50005, post_norm=True, embedding_norm=True, table_offset=2),
    "blenderbot": BartTraits(vocabulary=8008, table_offset=0),
    "blenderbot-small": BartTraits(post_norm=True, embedding_norm=True, table_offset=0),
}


def read_bart_like(config: Config) -> Architecture:
    """The translation and summary models of BART_LIKE; any other is read as BART, which keeps the sizes about right."""
    family = str(config["model_type"])
    traits = BART_LIKE.get(family, BART_LIKE["bart"])
    hidden = number(config, *HIDDEN, default=1024)
    vocabulary = number(config, "vocab_size", default=traits.vocabulary)
    positions = number(config, "max_position_embeddings", default=1024)

    def block(side: str) -> Block:
        decoder = side == "decoder"
        heads = number(config, f"{side}_attention_heads", "num_attention_heads", default=16)
        ffn = number(config, f"{side}_ffn_dim", "intermediate_size", default=4096)
        attentions = 2 if decoder else 1
        attention = tuple((name, hidden, hidden) for name in ("k_proj", "v_proj", "q_proj", "out_proj"))
        return Block(
            layers=number(config, f"{side}_layers", f"num_{side}_layers", "num_hidden_layers", default=12),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            ffn=ffn,
            activation=activation_of(config.get("activation_function"), traits.activation),
            cross_attention=decoder,
            causal=decoder,
            post_norm=traits.post_norm,
            hidden_dropout=dropout_of(config, "dropout"),
            attention_dropout=dropout_of(config, "attention_dropout", default=traits.attention_dropout),
            ffn_dropout=dropout_of(config, "activation_dropout", default=0.0),
            linear_parameters=attentions * 4 * hidden * hidden + 2 * hidden * ffn,
            other_parameters=attentions * 4 * hidden + ffn + hidden + (attentions + 1) * 2 * hidden,
            linears=attention * attentions + (("fc1", hidden, ffn), ("fc2", ffn, hidden)),
        )

    tied = bool(config.get("tie_word_embeddings", traits.tied))
    tables = 0 if traits.table_offset is None else 2 * (positions + traits.table_offset) * hidden
    norms = 4 * hidden * ((not traits.post_norm) + traits.embedding_norm)
    return Architecture(
        model_type=family,
        kind="encoder-decoder",
        vocabulary=vocabulary,
        hidden=hidden,
        blocks=(*_with_experts(config, block("encoder")), *_with_experts(config, block("decoder"))),
        embedding_parameters=vocabulary * hidden + tables + norms,
        head_linear_parameters=0 if tied else vocabulary * hidden,
        head_other_parameters=0,
        tied=tied,
        frozen_parameters=tables if traits.frozen_tables else 0,
        max_positions=None if traits.table_offset is None else positions,
        approximate=family == "nllb-moe",
        biased_logits=family not in ("m2m_100", "nllb-moe"),
    )


def _with_experts(config: Config, block: Block) -> tuple[Block, ...]:
    """Every n-th block of a stack has experts (NLLB-MoE, Switch Transformers), by the stack's own key."""
    step = config.get("decoder_sparse_step" if block.causal else "encoder_sparse_step")
    return expert_blocks({**config, "decoder_sparse_step": step}, block)
