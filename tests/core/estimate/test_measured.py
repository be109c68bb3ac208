from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.estimate.measured import BETWEEN_RUNS, measured_start, measured_step
from trainwiz.core.estimate.time import cpu_rate, step_time
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.measurement import Measurement

from tests.core.history.measurements import measurement_of
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

RATE = cpu_rate(8)


@pytest.fixture(scope="module")
def work() -> Workload:
    made = plan(
        real(machine(gpu=None)),
        config("esm2-8m", training__max_steps=10, batch__micro_batch_size=4, batch__gradient_accumulation_steps=4),
    )
    assert made.work is not None
    return made.work


def steady(work: Workload, **changes: Any) -> Measurement:
    return replace(measurement_of(work), **changes)


def test_the_same_work_gives_what_was_measured(work: Workload) -> None:
    found = measured_step(work, work, (steady(work, step_s=2.0, step_low_s=1.9, step_high_s=2.1),), RATE)
    assert found is not None and found.exact
    assert found.step.likely == pytest.approx(2.0)
    assert found.step.high / 2.0 == pytest.approx(BETWEEN_RUNS["cpu"])
    assert (found.basis, found.text) == ("probe", "measured on this machine, 2026-11-21 (probe)")
    assert found.calibration == pytest.approx(2.0 / step_time(work, RATE).step.likely)


@each(
    ("newest", "others", "low", "high"),
    [
        ({"step_low_s": 1.0, "step_high_s": 2.1}, [], 1.0, 4.0),
        ({"step_low_s": 1.9, "step_high_s": 2.1}, [{"step_s": 3.0, "step_low_s": 2.9, "step_high_s": 3.1}], 4 / 3, 3.0),
    ],
)
def test_uneven_steps_and_other_measurements_widen_the_range(
    work: Workload, newest: dict[str, float], others: list[dict[str, float]], low: float, high: float
) -> None:
    measured = (steady(work, step_s=2.0, **newest), *(steady(work, **values) for values in others))
    found = measured_step(work, work, measured, RATE)
    assert found is not None
    assert (found.step.low, found.step.high) == pytest.approx((low, high))
    assert measured_step(work, work, (steady(work, model="other"),), RATE) is None


def test_another_batch_is_scaled_by_the_formula_and_wider(work: Workload) -> None:
    one = steady(work, step_s=2.0, step_low_s=1.9, step_high_s=2.1)
    same = measured_step(work, work, (one,), RATE)
    larger = work.with_micro_batch(2 * work.micro_batch)
    found = measured_step(larger, larger, (one,), RATE)
    assert same is not None and found is not None and not found.exact
    ratio = step_time(larger, RATE).step.likely / step_time(work, RATE).step.likely
    assert found.step.likely == pytest.approx(2.0 * ratio)
    assert found.step.high / found.step.low > same.step.high / same.step.low
    assert found.text == f"scaled from 4 x {work.length}, measured on this machine, 2026-11-21 (probe)"
    further = measured_step(work.with_micro_batch(32), work.with_micro_batch(32), (one,), RATE)
    assert further is not None
    assert further.step.high / further.step.low > found.step.high / found.step.low


def test_other_lengths_of_the_same_settings_are_scaled(work: Workload) -> None:
    one = steady(work, usual_length=work.length // 2, step_s=2.0, step_high_s=2.1)
    found = measured_step(work, work, (one,), RATE)
    assert found is not None and not found.exact
    assert found.text == f"scaled from 4 x {work.length // 2}, measured on this machine, 2026-11-21 (probe)"
    assert found.step.likely > 3.0
    assert found.step.high / found.step.likely > BETWEEN_RUNS["cpu"]
    unknown_card = measured_step(work, work, (steady(work, step_s=2.0, step_high_s=2.1),), None)
    assert unknown_card is not None and unknown_card.calibration is None
    assert unknown_card.step.likely == pytest.approx(2.0)
    for other in (one, steady(work, micro_batch=9)):
        assert measured_step(work, work, (other,), None) is None


def test_rows_of_like_length_speak_before_newer_ones_of_others(work: Workload) -> None:
    other = steady(work, usual_length=work.length // 4, step_s=0.5, step_low_s=0.5, step_high_s=0.5)
    like = steady(work, step_s=2.0, step_low_s=1.9, step_high_s=2.1)
    found = measured_step(work, work, (other, like), RATE)
    assert found is not None and found.exact
    assert found.step.likely == pytest.approx(2.0)
    assert found.step.high / 2.0 == pytest.approx(BETWEEN_RUNS["cpu"])


def test_the_start_is_that_of_whole_runs(work: Workload) -> None:
    assert measured_start(work, (steady(work, start_s=8.0),)) is None
    runs = (steady(work, source="run", start_s=8.0), steady(work, source="run", start_s=12.0))
    found = measured_start(work, runs)
    assert found is not None
    start, text = found
    assert start.low < 8.0 and start.high > 12.0
    assert text == "measured on this machine, 2026-11-21 (run)"
