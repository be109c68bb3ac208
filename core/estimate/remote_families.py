"""Readers of families whose code comes with the model, and whose configs name sizes in a way of their own.

transformers has no such model, so nothing of these formulas could be compared with a trace: `approximate` stays set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.config_keys import HEADS, number
from trainwiz.core.estimate.decoder_families import read_decoder
from trainwiz.core.estimate.decoder_traits import Traits
from trainwiz.core.estimate.generic_family import read_generic

Config = Mapping[str, Any]

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
