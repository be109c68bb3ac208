"""Traces by layers against full ones, phase by phase."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.estimate.trace.layers import ALL_TRACED, trace_layers
from trainwiz.core.estimate.trace.replay import trace_full
from trainwiz.core.language import use_language
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import request

HALF_A_PERCENT = 0.005
SIZES = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4,
}  # fmt: skip
KV = {"num_key_value_heads": 2, "head_dim": 16}
SEQ2SEQ = {
    "vocab_size": 128, "d_model": 64, "encoder_layers": 16, "decoder_layers": 16, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip
T5 = {"vocab_size": 128, "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "decoder_start_token_id": 0}
HARD = {"checkpointing": True, "attention": "eager", "optimizer": "adamw_torch"}


def of(task: str, config: dict[str, Any], **changes: Any) -> TraceRequest:
    sizes: dict[str, Any] = {
        "micro_batch": 3,
        "length": 96,
        "eval_micro_batch": 3,
        "target_length": 64 if task == "seq2seq" else 0,
    }
    return request(config, task=task, **{**sizes, **changes})


def check(asked: TraceRequest, *, extended: bool = True) -> None:
    full, layers = trace_full(asked), trace_layers(asked)
    assert layers.tier == "layers" and layers.reserved_bytes is None
    assert ("extrapolated" in layers.note, layers.note == ALL_TRACED) == (extended, not extended)
    assert (layers.parameters, layers.trainable_parameters) == (full.parameters, full.trainable_parameters)
    assert layers.kernels == pytest.approx(full.kernels, rel=HALF_A_PERCENT)
    assert layers.flops == pytest.approx(full.flops, rel=HALF_A_PERCENT)
    for phase in ("training", "evaluation"):
        expected = {moment.name: moment for moment in getattr(full, phase)}
        found = {moment.name: moment for moment in getattr(layers, phase)}
        assert [name for name in expected if name not in found and "other layers" not in name] == []
        fullest = max(expected.values(), key=lambda moment: moment.bytes)
        assert max(moment.bytes for moment in found.values()) == pytest.approx(fullest.bytes, rel=HALF_A_PERCENT)
        for name, moment in found.items():
            assert moment.bytes == pytest.approx(expected[name].bytes, rel=HALF_A_PERCENT), name
            for kind, size in moment.parts.items():
                assert size == pytest.approx(expected[name].parts[kind], abs=0.02 * moment.bytes), (name, kind)


MOE = {
    "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "decoder_sparse_step": 2,
    "num_key_value_heads": 4,
}  # fmt: skip
LORA = {"lora_rank": 4, "lora_targets": ("q_proj", "v_proj"), "half_weights": True, "checkpointing": True}


@pytest.mark.timeout(1200)
def test_layers_of_two_kinds_stand_for_the_whole() -> None:
    config = {"model_type": "qwen2_moe", **SIZES, **MOE}
    check(of("causal-lm", config, **HARD))


def test_a_shallow_model_is_traced_as_it_is() -> None:
    check(of("masked-lm", {"model_type": "bert", **SIZES, "num_hidden_layers": 3}), extended=False)


def test_what_the_cache_keeps_is_english_and_is_translated_when_it_is_read() -> None:
    config = {"model_type": "gpt2", "vocab_size": 128, "n_embd": 64, "n_layer": 8, "n_head": 4}
    try:
        use_language("zh")
        traced = trace_layers(of("causal-lm", config))
        assert traced.note.isascii() and not traced.note_words.isascii()
    finally:
        use_language("en")
    assert traced.note_words.isascii()


@pytest.mark.all
@pytest.mark.parametrize("changes", [{}, HARD], ids=["plain", "checkpointed, eager"])
@pytest.mark.parametrize(
    ("task", "config"),
    [
        ("masked-lm", {"model_type": "esm", **SIZES, "position_embedding_type": "rotary", "pad_token_id": 1, "token_dropout": True, "mask_token_id": 32}),
        ("masked-lm", {"model_type": "modernbert", **SIZES, "num_hidden_layers": 22, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
        # Its peak moves with the depth.
        ("seq2seq", {"model_type": "t5", "num_layers": 10, **T5}),
        ("masked-lm", {"model_type": "distilbert", "vocab_size": 128, "dim": 64, "hidden_dim": 128, "n_layers": 12, "n_heads": 4}),
        ("causal-lm", {"model_type": "mistral", **SIZES, "num_key_value_heads": 2}),
        ("causal-lm", {"model_type": "gemma3_text", **SIZES, **KV, "num_hidden_layers": 38, "sliding_window": 32}),
        ("causal-lm", {"model_type": "mixtral", **SIZES, **KV, "num_local_experts": 4}),
        ("seq2seq", {"model_type": "m2m_100", **SEQ2SEQ}),
        ("seq2seq", {"model_type": "bart", **SEQ2SEQ, "decoder_layers": 4}),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else value,
)  # fmt: skip
def test_other_families(task: str, config: dict[str, Any], changes: dict[str, Any]) -> None:
    check(of(task, config, generation_length=0 if task == "masked-lm" else 16, **changes))
    if config["model_type"] == "mistral" and not changes:
        check(of(task, config, **LORA))
