"""Families whose code comes with the model: sizes against the counts that their makers give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.families import read_architecture

QWEN: dict[str, Any] = {
    "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "vocab_size": 151936, "kv_channels": 128,
    "tie_word_embeddings": False, "no_bias": True, "seq_length": 8192,
}  # fmt: skip
CHATGLM3: dict[str, Any] = {
    "model_type": "chatglm", "architectures": ["ChatGLMModel"], "padded_vocab_size": 65024, "hidden_size": 4096,
    "ffn_hidden_size": 13696, "num_layers": 28, "num_attention_heads": 32, "kv_channels": 128, "seq_length": 8192,
    "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True, "tie_word_embeddings": False,
}  # fmt: skip


def read(config: dict[str, Any]) -> Architecture:
    architecture, reason = read_architecture(config)
    assert architecture is not None, reason
    return architecture


@pytest.mark.parametrize(
    ("hidden", "layers", "heads", "intermediate", "vocabulary", "parameters"),
    [
        (2048, 24, 16, 11008, 151936, 1_836_828_672),
        (4096, 32, 32, 22016, 151936, 7_721_324_544),
        (5120, 40, 40, 27392, 152064, 14_167_290_880),
    ],
    ids=["1.8B", "7B", "14B"],
)
def test_gate_and_value_of_the_first_qwen_share_its_intermediate_size(
    hidden: int, layers: int, heads: int, intermediate: int, vocabulary: int, parameters: int
) -> None:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary}
    made = read({**QWEN, **sizes, "intermediate_size": intermediate})
    assert made.parameters == parameters
    assert made.blocks[0].ffn == intermediate // 2
    assert made.approximate, "no trace can be made of code that comes with a model"


def test_the_published_config_of_qwen(shared_data: Path) -> None:
    config = json.loads((shared_data / "measurements" / "configs" / "Qwen__Qwen-7B.json").read_text(encoding="utf-8"))
    assert read(config).parameters == 7_721_324_544


def test_chatglm_has_padded_words_and_shared_keys() -> None:
    made = read(CHATGLM3)
    assert made.parameters == 6_243_584_000
    assert (made.vocabulary, made.blocks[0].kv_heads) == (65024, 2)
    assert {name: (first, second) for name, first, second in made.blocks[0].linears} == {
        "query_key_value": (4096, 4608),
        "self_attention.dense": (4096, 4096),
        "dense_h_to_4h": (4096, 2 * 13696),
        "dense_4h_to_h": (13696, 4096),
    }
    assert read({**CHATGLM3, "multi_query_attention": False}).blocks[0].kv_heads == 32


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({key: value for key, value in CHATGLM3.items() if key != "padded_vocab_size"}, "vocab_size"),
        ({**QWEN, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}, "intermediate_size"),
    ],
)
def test_what_is_missing_is_named(config: dict[str, Any], missing: str) -> None:
    architecture, reason = read_architecture(config)
    assert architecture is None and missing in reason
