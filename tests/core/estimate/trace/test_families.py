"""Families of transformers, configs that cannot be built, and peaks that others published.

litgpt's table (tutorials/resource-tables.md): LoRA of rank 8 on the queries and values, bf16-true,
on an A100 with 40 GB, in units of 10^9 bytes.
"""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.estimate.trace.replay import trace_full
from trainwiz.core.estimate.trace.step import CannotTrace

from tests.core.estimate.trace.requests import GPT2, LLAMA, request, traced
from tests.each import each

GROUPED = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
T5 = {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "decoder_start_token_id": 0}


@each(
    ("task", "kind", "config"),
    [
        ("causal-lm", "mixtral", GROUPED),
        ("seq2seq", "mt5", {**T5, "feed_forward_proj": "gated-gelu"}),
        ("sequence-classification", "qwen2", GROUPED),
    ],
)
def test_a_step_of_families(task: str, kind: str, config: dict[str, Any]) -> None:
    """Experts, two stacks, a head of classes; tools/benchmarks/family_traces.py has the others."""
    sizes = {"micro_batch": 2, "length": 64, "target_length": 48 if task == "seq2seq" else 0, "eval_micro_batch": 2}
    result = trace_full(request({"vocab_size": 1000, **config, "model_type": kind}, task=task, **sizes))
    names = [moment.name for moment in result.training]
    assert (names[0], names[-1]) == ("the forward pass", "the optimizer step")
    last = result.training[-1].parts
    # Nothing outlives the step: what is there at its end are weights, gradients and states alone.
    assert last["activations"] == last["logits"] == 0
    assert last["weights"] >= 4 * result.parameters
    # Rounded up to 512 bytes each.
    assert last["gradients"] <= 4 * result.parameters + 512 * 200
    assert result.allocated_bytes > last["weights"] + last["optimizer"]
    assert result.replay is not None and result.replay.likely >= result.allocated_bytes
    assert result.evaluation[0].name == "an evaluation"


LLAMA_7B = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA_13B = {
    **LLAMA_7B, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
    "num_key_value_heads": 40,
}  # fmt: skip
PHI = {
    "model_type": "phi", "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "partial_rotary_factor": 0.5, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    # litgpt computes this activation in one kernel; transformers' own gelu_new takes eight.
    "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
LORA = {
    "precision": "bf16-true", "half_weights": True, "lora_rank": 8, "lora_targets": ("q_proj", "v_proj"),
    "padded": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "length", "micro_batch", "measured"),
    [
        pytest.param(LLAMA_7B, 1304, 1, 21.30, id="llama-2-7b", marks=pytest.mark.all),
        pytest.param(LLAMA_13B, 1304, 1, 38.12, id="llama-2-13b", marks=pytest.mark.all),
        pytest.param(PHI, 1044, 4, 10.68, id="phi-1.5-4"),
    ],
)
def test_litgpt(config: dict, length: int, micro_batch: int, measured: float) -> None:
    result = trace_full(request(config, length=length, micro_batch=micro_batch, **LORA))
    assert result.allocated_bytes / 1e9 == pytest.approx(measured, rel=0.03)


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


@each(("config", "settings", "code", "said"), [
    ({"model_type": "llamma", "hidden_size": 8}, {}, "unknown_model", "'llamma'"),
    ({**LLAMA, "hidden_size": 250}, {}, "invalid_config", "not a multiple"),
    ({"model_type": "qwen", "auto_map": {"AutoModel": "m.QWen"}}, {}, "remote_code", "include custom code"),
    ({**GPT2, "n_head": 7}, {}, "invalid_config", "gpt2"),
    (LLAMA, {"task": "masked-lm"}, "unsupported", "masked-lm"),
    (LLAMA, {"lora_rank": 8, "lora_targets": ("nothing",)}, "unsupported", "'nothing'"),
    (GPT2, {"length": 1024}, "unsupported", "shorter length"),
    (GEMMA2, {}, "invalid_config", "does not support an attention implementation"),
    *(({**LLAMA, **wrong}, {}, None, "") for wrong in WRONG),
])  # fmt: skip
def test_each_problem(config: dict[str, Any], settings: dict[str, Any], code: str | None, said: str) -> None:
    error = problem(config, **settings)
    assert error.code == code or (code is None and error.code in ("invalid_config", "unsupported"))
    assert said in error.message


def test_what_is_no_problem() -> None:
    assert trace_full(request(GEMMA2, attention="eager")).allocated_bytes > 0
    # A known type with an auto_map is transformers' own.
    config = {**LLAMA, "auto_map": {"AutoModelForCausalLM": "elsewhere--modeling.Evil"}}
    assert traced(request(config)).parameters == traced(request(LLAMA)).parameters


def test_weights_are_never_made() -> None:
    huge = {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "vocab_size": 128256}
    assert trace_full(request(huge, micro_batch=1)).parameters > 2e9
