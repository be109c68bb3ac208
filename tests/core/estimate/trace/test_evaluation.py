"""Evaluating."""

import pytest
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import ESM, LLAMA, request, traced


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
    def logits(chunk: int | None) -> int:
        found = moments(request({**LLAMA, "vocab_size": 50_000}, eval_micro_batch=8, loss_chunk=chunk))
        return found["the logits of an evaluation"]["logits"]

    assert logits(128) < 0.3 * logits(None) and logits(None) > 4 * 8 * 128 * 50_000
