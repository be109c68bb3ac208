"""Smoke plans keep the engine of the profile, on a machine without its GPUs too."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.profile import Profile, ProfileHardware

from tests.core.plan.machines import codes, finding, machine, real
from tests.each import each


def smoke(gpus: int, here: Any = None, **values: Any) -> Plan:
    profile = Profile("p", hardware=ProfileHardware("RTX 3090", gpus))
    wanted = {"model.name": "esm2-tiny", "mode.kind": "smoke", "training.max_steps": 4}
    settings = {key.replace("__", "."): value for key, value in values.items()}
    request = RunConfig().with_values({**wanted, **settings}, "profile")
    target = here or replace(real(machine(None), deepspeed="0.19"), torch_cuda=None)
    return make_plan(target, request, model=load_models()["esm2-tiny"], data=None, profile=profile)


@each(
    ("gpus", "values", "processes", "strategy"),
    [
        (1, {}, 1, "single"),
        (3, {}, 2, "ddp"),
        (4, {"engine__strategy": "zero2"}, 2, "zero2"),
        (3, {"engine__processes": 3}, 2, "ddp"),
        (2, {"engine__offload": "optimizer"}, 2, "zero2"),
        (1, {"engine__offload": "optimizer"}, 1, "zero2"),
        (3, {"engine__strategy": "single"}, 1, "single"),
    ],
)
def test_several_gpus_are_two_processes_on_a_cpu(
    gpus: int, values: dict[str, Any], processes: int, strategy: str
) -> None:
    made = smoke(gpus, **values)
    assert made.config.engine.processes == made.batch.world_size == processes
    assert made.config.engine.strategy == strategy
    assert not made.errors


def test_one_gpu_for_a_profile_with_three_says_what_it_leaves_out() -> None:
    made = smoke(3, real(machine("RTX 3090")), engine__strategy="ddp")
    assert made.config.engine.strategy == "single"
    assert finding(made, "engine_not_exercised").severity == "warning"
    assert "engine_not_exercised" not in codes(smoke(3, real(machine("RTX 3090", 2)), engine__strategy="ddp"))


def test_bf16_with_deepspeed_on_a_cpu_is_said_before_the_start() -> None:
    made = smoke(1, engine__strategy="zero2", engine__precision="bf16")
    error = finding(made, "bf16_unsupported")
    assert error.severity == "error" and error.remedies[0].changes == {"engine.precision": "fp32"}
    assert "bf16_unsupported" not in codes(smoke(1, engine__precision="bf16"))


@pytest.mark.parametrize("optimizer", ["adamw_bnb_8bit", "paged_adamw_8bit"])
def test_an_optimizer_in_8_bits_has_a_stand_in_where_it_cannot_run(optimizer: str) -> None:
    on_cpu = smoke(1, engine__optimizer=optimizer)
    without = smoke(1, real(machine("RTX 3090")), engine__optimizer=optimizer)
    with_it = smoke(1, real(machine("RTX 3090"), bitsandbytes="0.49"), engine__optimizer=optimizer)
    for made in (on_cpu, without):
        assert made.config.engine.optimizer == "adamw_torch" and not made.errors
        assert optimizer in finding(made, "engine_not_exercised").message
    assert with_it.config.engine.optimizer == optimizer and "engine_not_exercised" not in codes(with_it)
