"""Reading the keys of a Hugging Face architecture config, which name the same thing in many ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Activation

_TANH_UNFUSED = {"gelu_new", "gelu_fast", "gelu_accurate"}


LARGEST = 2**40
"""No size of a model is above this; figures made of larger ones would leave the range of a float."""


HIDDEN = ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "model_dim", "embed_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_head_kv",
    "num_query_groups",
    "multi_query_group_num",
)
HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "attention_head_dim")
FFN = (
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "ffn_hidden_size",
    "hidden_dim",
    "d_ff",
    "decoder_ffn_dim",
    "mlp_hidden_size",
)
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
"""Names that configs have for one and the same size."""


class MissingKeyError(Exception):
    """A config lacks a key that its family has no default for."""


def number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first key that is there, as a whole number; MissingKeyError without one and without a default,
    TypeError, ValueError or OverflowError for what is no number of a sensible size."""
    for name in names:
        if config.get(name) is not None:
            value = int(config[name])
            if abs(value) > LARGEST:
                raise ValueError(f"{name} is too large")
            return value
    if default is None:
        raise MissingKeyError(names[0])
    return default


def activation_of(name: Any, default: str = "gelu") -> Activation:
    """Whether transformers runs the activation function as one kernel."""
    name = str(name or default)
    if name in _TANH_UNFUSED:
        return "tanh_unfused"
    return "relu" if name == "relu" else "fused"


def dropout_of(config: Mapping[str, Any], *names: str, default: float = 0.1) -> bool:
    """Whether a dropout is active; `default` is the library's own."""
    for name in names:
        if config.get(name) is not None:
            return float(config[name]) > 0
    return default > 0
