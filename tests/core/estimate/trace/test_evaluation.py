"""Evaluating and generating."""

import pytest
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import ESM, LLAMA, M2M, T5, request, traced

GENERATING = "generating text in an evaluation"


def moments(asked: TraceRequest) -> dict[str, dict[str, int]]:
    return {moment.name: moment.parts for moment in traced(asked).evaluation}


def test_nothing_held_out_is_nothing_to_evaluate() -> None:
    assert moments(request(LLAMA)) == {}


def test_an_evaluation_has_weights_and_states_but_no_gradients() -> None:
    asked = request(ESM, task="masked-lm", eval_micro_batch=8)
    parts = moments(asked)["an evaluation"]
    assert parts["gradients"] == 0
    assert parts["optimizer"] == pytest.approx(2 * parts["weights"], rel=0.01)


def test_an_evaluation_keeps_no_activations_of_layers() -> None:
    deep = {**LLAMA, "num_hidden_layers": 8}
    assert [
        moments(request(config, eval_micro_batch=8, precision="fp32"))["an evaluation"]["activations"]
        for config in (LLAMA, deep)
    ] == [moments(request(LLAMA, eval_micro_batch=8, precision="fp32"))["an evaluation"]["activations"]] * 2


def test_the_logits_of_an_evaluation_in_slices() -> None:
    large = {**LLAMA, "vocab_size": 50_000}
    whole, sliced = (
        moments(request(large, eval_micro_batch=8, loss_chunk=chunk))["the logits of an evaluation"]["logits"]
        for chunk in (None, 32)
    )
    assert sliced < 0.1 * whole


def cache_of_beams(config: dict, beams: int, **settings: object) -> int:
    return moments(request(config, eval_micro_batch=4, beams=beams, generation_length=64, **settings))[GENERATING][
        "activations"
    ]


def test_generation_holds_the_cache_of_every_beam() -> None:
    settings = {"precision": "fp32", "length": 128}
    one, four = (cache_of_beams(LLAMA, beams, **settings) for beams in (1, 4))
    assert four - one == pytest.approx(3 * (one), rel=0.5)
    # Keys and values of four layers over the whole sequence, and of one layer again while it grows.
    whole = 4 * 4 * 2 * 128 * 4 * 32 * 4
    assert four > whole


@pytest.mark.parametrize("config", [M2M, LLAMA], ids=["m2m_100", "llama"])
def test_a_prompt_that_stands_for_written_text_reserves_nothing(config: dict) -> None:
    large = {**config, "vocab_size": 50_000}
    kind = {"task": "seq2seq", "target_length": 16} if config is M2M else {}
    asked = request(large, length=400, eval_micro_batch=8, beams=4, generation_length=300, **kind)
    result = traced(asked)
    fullest = max(moment.bytes for moment in (*result.training, *result.evaluation))
    assert result.reserved_bytes is not None
    assert result.reserved_bytes < 1.6 * fullest


@pytest.mark.parametrize("config", [T5, M2M], ids=["t5", "m2m_100"])
def test_an_encoder_decoder_generates_with_beams(config: dict) -> None:
    asked = request(
        config, task="seq2seq", target_length=96, eval_micro_batch=4, beams=3, generation_length=40, checkpointing=True
    )
    found = moments(asked)
    assert set(found) >= {"an evaluation", "reading the prompts in an evaluation", GENERATING}


def test_larger_evaluation_batches_and_longer_texts_need_more_and_adapters_generate_too() -> None:
    few, many = (moments(request(LLAMA, eval_micro_batch=rows))["the logits of an evaluation"] for rows in (4, 16))
    assert many["logits"] > 3 * few["logits"]
    text = {"task": "seq2seq", "target_length": 96, "eval_micro_batch": 4}
    short, long = (moments(request(T5, **text, generation_length=length))[GENERATING] for length in (16, 160))
    assert long["activations"] > short["activations"]
    lora = {"lora_rank": 8, "lora_targets": ("q_proj",), "half_weights": True}
    assert GENERATING in moments(request(LLAMA, **lora, eval_micro_batch=2, generation_length=16))
