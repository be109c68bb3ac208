"""Bytes a parameter by strategy, against the published tables (Rajbhandari et al. 2020, and ESTIMATOR's rules)."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.peak import peak_of
from trainwiz.core.estimate.states import states_of

from tests.core.estimate.test_peak import GIB, esm650
from tests.each import each

P = esm650().architecture.parameters


def test_mixed_precision_adamw_is_16_bytes_a_parameter() -> None:
    states = states_of(esm650())
    assert states.weights + states.gradients + states.optimizer == 16 * P
    assert pytest.approx(9.7, abs=0.05) == (16 * P) / GIB


@each(
    ("settings", "name", "bytes_a_parameter"),
    [
        ({"optimizer": "sgd"}, "optimizer", 0),
        ({"optimizer": "adamw_bnb_8bit"}, "optimizer", 2.05),
        ({"optimizer": "adamw_torch"}, "optimizer", 8),
        ({"optimizer": "adamw_torch"}, "step_temporary", 4),
        ({"optimizer": "adamw_torch_fused"}, "step_temporary", 0),
        ({"precision": "bf16-true"}, "weights", 2),
        ({"precision": "bf16-true"}, "optimizer", 4),
        ({"strategy": "ddp", "world_size": 2}, "buckets", 4),
        ({"strategy": "ddp", "world_size": 2, "optimizer": "adamw_torch"}, "step_temporary", 4),
    ],
)
def test_bytes_of_a_parameter(settings: dict[str, Any], name: str, bytes_a_parameter: float) -> None:
    assert getattr(states_of(esm650(**settings)), name) == pytest.approx(bytes_a_parameter * P, rel=0.01)


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
