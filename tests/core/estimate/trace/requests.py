"""Small models of many families, and requests to trace them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from trainwiz.core.estimate.trace.replay import trace_full
from trainwiz.core.tracing.request import TraceRequest, TraceResult

from tests.core.tracing.requests import REQUEST

LLAMA = {
    "model_type": "llama", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 2000, "n_positions": 512,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 256, "d_ff": 512, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 8,
    "d_kv": 32, "vocab_size": 2000, "decoder_start_token_id": 0, "dropout_rate": 0.0,
}  # fmt: skip
ESM = {
    "model_type": "esm", "vocab_size": 33, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
    "intermediate_size": 1024, "position_embedding_type": "rotary", "token_dropout": True, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "mask_token_id": 32, "pad_token_id": 1, "max_position_embeddings": 1026,
    "emb_layer_norm_before": False,
}  # fmt: skip
M2M = {
    "model_type": "m2m_100", "vocab_size": 5000, "d_model": 256, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
    "max_position_embeddings": 512, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": True, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
}  # fmt: skip


def request(config: dict[str, Any], **settings: Any) -> TraceRequest:
    usual: dict[str, Any] = {"micro_batch": 4, "length": 128, "precision": "bf16"}
    return replace(REQUEST, model_config=json.dumps(config, sort_keys=True), **{**usual, **settings})


@cache
def traced(asked: TraceRequest) -> TraceResult:
    """In full, once for all tests of a process that ask for the same."""
    return trace_full(asked)
