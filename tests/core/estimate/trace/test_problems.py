"""Configs that no model can be built from, each with one sentence for the user."""

import json
from typing import Any

import pytest
from trainwiz.core.estimate.trace.build import CannotTrace
from trainwiz.core.estimate.trace.replay import trace_full

from tests.core.estimate.trace.requests import GPT2, LLAMA, request, traced
from tests.each import each

GEMMA2 = {
    "model_type": "gemma2", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
WRONG: tuple[dict[str, Any], ...] = (
    {"hidden_size": "many"}, {"hidden_size": -4}, {"num_attention_heads": 0}, {"hidden_act": "nothing"},
    {"vocab_size": None}, {"rope_parameters": {"rope_type": "nothing"}},
)  # fmt: skip


def problem(config: dict[str, Any], **settings: object) -> CannotTrace:
    with pytest.raises(CannotTrace) as raised:
        trace_full(request(config, **settings))
    message = raised.value.message
    assert "\n" not in message and message.endswith(".") and "Traceback" not in message
    return raised.value


@each(
    ("config", "settings", "code", "said"),
    [
        ({"model_type": "llamma", "hidden_size": 8}, {}, "unknown_model", "'llamma'"),
        ({**LLAMA, "hidden_size": 250}, {}, "invalid_config", "not a multiple"),
        ({"model_type": "qwen", "auto_map": {"AutoModel": "m.QWen"}}, {}, "remote_code", "include custom code"),
        ({**GPT2, "n_head": 7}, {}, "invalid_config", "gpt2"),
        (LLAMA, {"task": "masked-lm"}, "unsupported", "masked-lm"),
        (LLAMA, {"lora_rank": 8, "lora_targets": ("nothing",)}, "unsupported", "'nothing'"),
        (GPT2, {"length": 1024}, "unsupported", "shorter length"),
        (GEMMA2, {}, "invalid_config", "does not support an attention implementation"),
        *(({**LLAMA, **wrong}, {}, None, "") for wrong in WRONG),
    ],
)
def test_each_problem(config: dict[str, Any], settings: dict[str, Any], code: str | None, said: str) -> None:
    error = problem(config, **settings)
    assert error.code == code or (code is None and error.code in ("invalid_config", "unsupported"))
    assert said in error.message


def test_what_is_no_problem() -> None:
    assert trace_full(request(GEMMA2, attention="eager")).allocated_bytes > 0
    # A known type with an auto_map is transformers' own.
    config = {**LLAMA, "auto_map": {"AutoModelForCausalLM": "elsewhere--modeling.Evil"}}
    assert traced(request(config)).parameters == traced(request(LLAMA)).parameters


def test_weights_are_never_made(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    huge = {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "vocab_size": 128256}
    result = trace_full(request(huge, micro_batch=1))
    assert result.parameters > 2e9
    assert not list(tmp_path.iterdir())
    json.dumps(result.to_json())
