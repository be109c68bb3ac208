"""States and temporaries of the optimizers."""

import pytest
from trainwiz.core.estimate.trace.step import trace_full
from trainwiz.core.tracing.request import TraceResult

from tests.core.estimate.trace.requests import LLAMA, request

CONFIG = {**LLAMA, "tie_word_embeddings": False}


def step(optimizer: str, **settings: object) -> dict[str, int]:
    return fullest(trace_full(request(CONFIG, optimizer=optimizer, **settings)))


def fullest(result: TraceResult) -> dict[str, int]:
    return next(moment.parts for moment in result.training if moment.name == "the optimizer step")


def test_adamw_keeps_two_states() -> None:
    parts = step("adamw_torch_fused")
    assert parts["optimizer"] == pytest.approx(2 * parts["weights"], rel=0.01)
    assert parts["temporary"] < 0.01 * parts["weights"]


def test_the_foreach_adamw_makes_a_copy_while_it_steps() -> None:
    parts = step("adamw_torch")
    assert parts["temporary"] == pytest.approx(parts["weights"], rel=0.02)


def test_adafactor_keeps_rows_and_columns() -> None:
    assert step("adafactor")["optimizer"] < 0.03 * step("adafactor")["weights"]


def test_plain_sgd_keeps_nothing() -> None:
    assert step("sgd")["optimizer"] == 0


def test_8_bit_adam_keeps_two_bytes_but_for_embeddings() -> None:
    parameters = trace_full(request(CONFIG)).parameters
    table = 2000 * 256
    norms = 9 * 256
    eight_bit = parameters - table - norms
    expected = 8 * (table + norms) + 2 * eight_bit * (1 + 4 / 256)
    assert step("adamw_bnb_8bit")["optimizer"] == pytest.approx(expected, rel=0.01)


def test_paged_states_are_not_counted() -> None:
    assert step("paged_adamw_8bit")["optimizer"] < 0.2 * step("adamw_bnb_8bit")["optimizer"]


def test_gradients_of_earlier_micro_batches_are_there_from_the_start() -> None:
    forward = trace_full(request(CONFIG, accumulation=2)).training[0]
    assert forward.name == "the forward pass"
    assert forward.parts["gradients"] == pytest.approx(forward.parts["weights"], rel=0.01)
    assert trace_full(request(CONFIG)).training[0].parts["gradients"] == 0


def test_adapters_alone_have_gradients_and_states() -> None:
    result = trace_full(
        request(CONFIG, lora_rank=8, lora_targets=("q_proj", "v_proj"), half_weights=True, lora_dropout=True)
    )
    assert result.trainable_parameters == 4 * (8 * (256 + 256) + 8 * (256 + 128))
    assert fullest(result)["gradients"] == pytest.approx(4 * result.trainable_parameters, rel=0.01)
