"""Every profile can be tried on this machine: `trainwiz --profile NAME --smoke --yes`, planned.

What a smoke run keeps of each: tests/core/config/test_modes.py. Real ones: tests/test_wheel.py runs the demo by the command,
tests/engines each engine, tests/core/training each task.
"""

from __future__ import annotations

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.profile.store import list_profiles

from tests.core.plan.machines import machine, real
from tests.each import each


@each("name", [profile.name for profile in list_profiles()])
def test_every_profile_can_be_tried_on_a_cpu(name: str) -> None:
    plan = plan_run(PlanRequest(profile=name, mode="smoke"), real(machine(gpu=None), bitsandbytes="0.49"))
    assert not plan.errors
