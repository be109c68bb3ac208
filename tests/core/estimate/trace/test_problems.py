"""Configs that no model can be built from, each with one sentence for the user."""

import json
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.estimate.trace.build import CannotTrace
from trainwiz.core.estimate.trace.step import trace_full

from tests.core.estimate.trace.requests import GPT2, LLAMA, request
from tests.each import each


def problem(config: dict[str, Any], **settings: object) -> CannotTrace:
    with pytest.raises(CannotTrace) as raised:
        trace_full(request(config, **settings))
    message = raised.value.message
    assert "\n" not in message
    assert message.endswith(".")
    assert "Traceback" not in message
    assert raised.value.problem.code == raised.value.code
    return raised.value


@each(
    ("config", "settings", "code", "said"),
    [
        ({"model_type": "llamma", "hidden_size": 8}, {}, "unknown_model", "'llamma'"),
        ({**LLAMA, "hidden_size": 250}, {}, "invalid_config", "not a multiple"),
        ({"model_type": "qwen", "auto_map": {"AutoModel": "m.QWen"}}, {}, "remote_code", "code of its own"),
        ({"hidden_size": 8}, {}, "invalid_config", "model_type"),
        ({**GPT2, "n_head": 7}, {}, "invalid_config", "gpt2"),
        (LLAMA, {"task": "masked-lm"}, "unsupported", "masked-lm"),
        (LLAMA, {"lora_rank": 8, "lora_targets": ("nothing",)}, "unsupported", "'nothing'"),
        (GPT2, {"length": 1024}, "unsupported", "shorter length"),
    ],
)
def test_each_problem(config: dict[str, Any], settings: dict[str, Any], code: str, said: str) -> None:
    error = problem(config, **settings)
    assert error.code == code
    assert said in error.message


def test_a_known_type_with_an_auto_map_is_transformers_own() -> None:
    config = {**LLAMA, "auto_map": {"AutoModelForCausalLM": "elsewhere--modeling.Evil"}}
    assert trace_full(request(config)).parameters == trace_full(request(LLAMA)).parameters


@each(
    "wrong",
    [
        {"hidden_size": "many"},
        {"hidden_size": -4},
        {"num_hidden_layers": "x"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 7, "head_dim": None},
        {"hidden_act": "nothing"},
        {"vocab_size": None},
        {"rope_parameters": {"rope_type": "nothing"}},
    ],
)
def test_keys_that_do_not_fit(wrong: dict[str, Any]) -> None:
    assert problem({**LLAMA, **wrong}).code in ("invalid_config", "unsupported")


def test_a_config_that_is_no_object() -> None:
    for text in ("[]", "3", "{", '"llama"'):
        with pytest.raises(CannotTrace) as raised:
            trace_full(replace(request(LLAMA), model_config=text))
        assert raised.value.code == "invalid_config"


def test_an_attention_that_the_model_lacks() -> None:
    config = {
        "model_type": "gemma2", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    }  # fmt: skip
    error = problem(config)
    assert "sdpa" in error.message
    assert "engine.attention" in error.message
    assert trace_full(request(config, attention="eager")).allocated_bytes > 0


def test_checkpointing_that_the_model_lacks() -> None:
    config = {
        "model_type": "albert", "vocab_size": 500, "hidden_size": 64, "embedding_size": 32, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4,
    }  # fmt: skip
    assert "engine.checkpointing" in problem(config, task="masked-lm", checkpointing=True).message


def test_weights_are_never_made(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    huge = {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "vocab_size": 128256}
    result = trace_full(request(huge, micro_batch=1))
    assert result.parameters > 3e9
    assert not list(tmp_path.iterdir())
    json.dumps(result.to_json())
