"""Bytes a parameter by strategy, against the published tables (Rajbhandari et al. 2020, and ESTIMATOR's rules)."""

import pytest
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
