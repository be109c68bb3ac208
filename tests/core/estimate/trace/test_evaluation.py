"""Evaluating and generating."""

import pytest
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import ESM, LLAMA, M2M, T5, request, traced
from tests.each import each

GENERATING = "generating text in an evaluation"


def moments(asked: TraceRequest) -> dict[str, dict[str, int]]:
    return {moment.name: moment.parts for moment in traced(asked).evaluation}


def test_an_evaluation_has_weights_and_states_but_no_gradients_and_no_activations_of_layers() -> None:
    assert moments(request(LLAMA)) == {}, "nothing held out is nothing to evaluate"
    parts = moments(request(ESM, task="masked-lm", eval_micro_batch=8))["an evaluation"]
    assert parts["gradients"] == 0
    assert parts["optimizer"] == pytest.approx(2 * parts["weights"], rel=0.01)
    flat, deep = (
        moments(request({**LLAMA, "num_hidden_layers": layers}, eval_micro_batch=8, precision="fp32"))["an evaluation"]
        for layers in (2, 4)
    )
    assert flat["activations"] == deep["activations"]


def test_logits_of_an_evaluation() -> None:
    def logits(config: dict, rows: int, chunk: int | None = None) -> int:
        found = moments(request(config, eval_micro_batch=rows, loss_chunk=chunk))
        return found["the logits of an evaluation"]["logits"]

    large = {**LLAMA, "vocab_size": 50_000}
    assert logits(large, 8, 32) < 0.1 * logits(large, 8)
    assert logits(LLAMA, 16) > 3 * logits(LLAMA, 4)


@each("config", [M2M, LLAMA])
def test_a_prompt_that_stands_for_written_text_reserves_nothing(config: dict) -> None:
    kind = {"task": "seq2seq", "target_length": 16} if config is M2M else {}
    large = {**config, "vocab_size": 50_000}
    result = traced(request(large, length=400, eval_micro_batch=8, beams=4, generation_length=300, **kind))
    fullest = max(moment.bytes for moment in (*result.training, *result.evaluation))
    assert result.reserved_bytes is not None and result.reserved_bytes < 1.6 * fullest


def test_encoder_decoders_and_adapters_generate() -> None:
    text = {"task": "seq2seq", "target_length": 96, "eval_micro_batch": 4}
    found = moments(request(T5, **text, beams=3, generation_length=40, checkpointing=True))
    assert set(found) >= {"an evaluation", "processing the prompts in an evaluation", GENERATING}
    lora = {"lora_rank": 8, "lora_targets": ("q_proj",), "half_weights": True}
    assert GENERATING in moments(request(LLAMA, **lora, eval_micro_batch=2, generation_length=16))
