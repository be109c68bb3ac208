"""What a plan says of its measurement before it is made."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.history.measurement import measurement_of
from trainwiz.core.plan.gather import planned_fields

from tests.core.plan.machines import config, machine, plan, real

MEASURED = {"measured_at": "2026-11-21T10:00:00+00:00", "source": "run", "steps": 5}
PACE = {"step_s": 1.0, "step_low_s": 1.0, "step_high_s": 1.0}


def test_a_plan_for_here_knows_all_but_what_is_measured() -> None:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10))
    fields = planned_fields(made)
    assert fields is not None
    assert measurement_of(fields, {**MEASURED, **PACE}) is not None
    assert measurement_of(fields, MEASURED) is None


def test_what_is_planned_for_elsewhere_is_not_measured_here() -> None:
    wanted = config("esm2-8m", training__max_steps=10)
    assert planned_fields(plan(machine(gpu=None), wanted)) is None


def test_one_machine_does_not_speak_for_several() -> None:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10))
    engine = made.config.engine.model_copy(update={"nodes": 2})
    assert planned_fields(replace(made, config=made.config.model_copy(update={"engine": engine}))) is None
