"""NCCL's variables: set where they help, with the reason, and never over the user's own."""

from dataclasses import replace

import pytest

from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

BOTH = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}


@each(
    ("gpu", "count", "expected"),
    [
        ("RTX 3080 20GB", 3, BOTH),
        ("RTX 4090", 2, BOTH),
        ("RTX 3080 20GB", 1, {}),
        ("RTX 3090", 2, {"NCCL_IB_DISABLE": "1"}),
        ("A100 40GB SXM", 4, {}),
        ("RTX A6000", 2, {}),
        ("H100 SXM", 8, {}),
    ],
)
def test_by_card(gpu: str, count: int, expected: dict[str, str]) -> None:
    made = plan(machine(gpu, count), config())
    assert made.config.engine.environment == expected
    for name in expected:
        choice = next(one for one in made.choices if one.key == f"engine.environment.{name}")
        assert choice.origin == "solved" and choice.reason


@pytest.mark.parametrize(("link", "disabled"), [("GPU1: NVLink x4", False), ("GPU1: one PCIe switch", True)])
def test_links_that_were_read_decide(link: str, disabled: bool) -> None:
    here = real(machine("RTX 3090", 2))
    linked = replace(here, gpus=tuple(replace(gpu, links=(link,)) for gpu in here.gpus))
    assert ("NCCL_P2P_DISABLE" in plan(linked, config()).config.engine.environment) is disabled


def test_the_users_value_stays() -> None:
    request = config(engine__environment={"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO"})
    made = plan(machine("RTX 3080 20GB", 3), request)
    assert made.config.engine.environment == {"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "1"}


def test_processes_wait_longer_than_a_step_may_take() -> None:
    assert plan(machine(), config()).config.engine.process_timeout_s is None
    assert plan(machine("RTX 3090", 2), config()).config.engine.process_timeout_s == 1800
    request = config("esm2-650m", batch__target_tokens=20_000_000, batch__sequence_length=512)
    slow = plan(machine("RTX 2080 Super", 2), request)
    assert (slow.config.engine.process_timeout_s or 0) >= 3 * (slow.time.step_high_s or 0) - 600 > 1800
    given = plan(machine("RTX 3090", 2), config(engine__process_timeout_s=77))
    assert given.config.engine.process_timeout_s == 77


def test_a_plan_with_an_environment_survives_being_planned_again() -> None:
    made = plan(machine("RTX 3080 20GB", 3), config(batch__target_samples=96))
    assert plan(machine("RTX 3080 20GB", 3), made.config).config == made.config
