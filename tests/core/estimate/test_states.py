"""Bytes a parameter by strategy, against the published tables (Rajbhandari et al. 2020, and ESTIMATOR's rules)."""

from dataclasses import replace

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.peak import peak_of
from trainwiz.core.estimate.states import states_of

from tests.core.estimate.test_peak import GIB, esm650

P = esm650().architecture.parameters


def test_mixed_precision_adamw_is_16_bytes_a_parameter() -> None:
    states = states_of(esm650())
    assert states.weights + states.gradients + states.optimizer == 16 * P
    assert pytest.approx(9.7, abs=0.05) == (16 * P) / GIB


def test_half_precision_weights_are_8_bytes_a_parameter() -> None:
    states = states_of(esm650(precision="bf16-true"))
    assert states.weights + states.gradients + states.optimizer == 8 * P


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("adamw_bnb_8bit", 2.05), ("adamw_torch", 8)])
def test_optimizer_states(optimizer: str, states: float) -> None:
    assert states_of(esm650(optimizer=optimizer)).optimizer == pytest.approx(states * P, rel=0.01)


def test_the_foreach_step_copies_the_weights_and_the_fused_one_does_not() -> None:
    assert states_of(esm650(optimizer="adamw_torch")).step_temporary == 4 * P
    assert states_of(esm650(optimizer="adamw_torch_fused")).step_temporary == 0


def test_ddp_has_buckets_of_gradient_size() -> None:
    assert states_of(esm650(strategy="ddp", world_size=2)).buckets == 4 * P


def test_ddp_steps_as_one_process_does() -> None:
    assert states_of(esm650(strategy="ddp", world_size=2, optimizer="adamw_torch")).step_temporary == 4 * P


def test_8_bit_adam_keeps_whole_states_of_embedding_tables() -> None:
    """As the Trainer asks bitsandbytes; the traced tier counts the same."""
    architecture, _ = read_architecture(load_models()["qwen2.5-1.5b"].architecture)
    assert architecture is not None
    qwen = replace(esm650(optimizer="adamw_bnb_8bit"), architecture=architecture)
    table = 151_936 * 1536
    expected = 8 * table + 2.05 * (qwen.architecture.parameters - table)
    assert states_of(qwen).optimizer == pytest.approx(expected, rel=0.001)
    adapters = replace(qwen, lora_rank=8, lora_targets=("q_proj",))
    assert states_of(adapters).optimizer == pytest.approx(2.05 * adapters.adapter_parameters, rel=0.001)


def test_the_buckets_of_zero_are_there_when_the_backward_pass_begins() -> None:
    """DeepSpeed makes them in its prologue, while the logits are still there."""

    def gradients(strategy: str) -> int:
        work = esm650(strategy=strategy, world_size=2, accumulation=1)
        moments = {moment.name: moment for moment in peak_of(work).moments}
        return moments["the start of the backward pass, in the loss"].parts["gradients"]

    sharded = states_of(esm650(strategy="zero2", world_size=2, accumulation=1))
    assert gradients("zero2") == sharded.backward_buffers + sharded.buckets > 0
    assert gradients("single") == 0
