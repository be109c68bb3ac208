"""States and temporaries of the optimizers."""

import pytest
from trainwiz.core.tracing.request import TraceResult

from tests.core.estimate.trace.requests import LLAMA, request, traced
from tests.each import each

CONFIG = {**LLAMA, "tie_word_embeddings": False}


def step(optimizer: str, **settings: object) -> dict[str, int]:
    return fullest(traced(request(CONFIG, optimizer=optimizer, **settings)))


def fullest(result: TraceResult) -> dict[str, int]:
    return next(moment.parts for moment in result.training if moment.name == "the optimizer step")


@each(
    ("optimizer", "states", "temporary"),
    [("adamw_torch_fused", 2, 0), ("adamw_torch", 2, 1), ("adafactor", 0.015, None), ("sgd", 0, None)],
)
def test_states_and_copies_beside_fp32_weights(optimizer: str, states: float, temporary: float | None) -> None:
    parts = step(optimizer)
    assert parts["optimizer"] == pytest.approx(states * parts["weights"], rel=0.01, abs=0.015 * parts["weights"])
    if temporary is not None:
        assert parts["temporary"] == pytest.approx(temporary * parts["weights"], abs=0.02 * parts["weights"])


def test_8_bit_adam_keeps_two_bytes_but_for_embeddings() -> None:
    parameters = traced(request(CONFIG)).parameters
    table = 2000 * 256
    norms = 9 * 256
    eight_bit = parameters - table - norms
    expected = 8 * (table + norms) + 2 * eight_bit * (1 + 4 / 256)
    assert step("adamw_bnb_8bit")["optimizer"] == pytest.approx(expected, rel=0.01)
    assert step("paged_adamw_8bit")["optimizer"] < 0.2 * step("adamw_bnb_8bit")["optimizer"], "pages are not counted"


def test_gradients_of_earlier_micro_batches_are_there_from_the_start() -> None:
    forward = traced(request(CONFIG, accumulation=2)).training[0]
    assert forward.name == "the forward pass"
    assert forward.parts["gradients"] == pytest.approx(forward.parts["weights"], rel=0.01)
    assert traced(request(CONFIG)).training[0].parts["gradients"] == 0


def test_adapters_alone_have_gradients_and_states() -> None:
    result = traced(
        request(CONFIG, lora_rank=8, lora_targets=("q_proj", "v_proj"), half_weights=True, lora_dropout=True)
    )
    assert result.trainable_parameters == 4 * (8 * (256 + 256) + 8 * (256 + 128))
    assert fullest(result)["gradients"] == pytest.approx(4 * result.trainable_parameters, rel=0.01)
