from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.evidence import BETWEEN_RUNS, CARRIED, MeasuredStep, measured_start, measured_step
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.time import Rate, cpu_rate, gpu_rate, spread_of, step_time
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.measurement import Measurement

from tests.core.history.measurements import measurement_of
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

RATE = cpu_rate(8)
TWO_S = {"step_s": 2.0, "step_low_s": 1.9, "step_high_s": 2.1}


@pytest.fixture(scope="module")
def work() -> Workload:
    sizes = {"batch__micro_batch_size": 4, "batch__gradient_accumulation_steps": 4}
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, **sizes))
    assert made.work is not None
    return made.work


def steady(work: Workload, **changes: Any) -> Measurement:
    return replace(measurement_of(work), **changes)


def found_for(work: Workload, *known: Measurement, rate: Rate | None = RATE) -> MeasuredStep | None:
    return measured_step(work, work, None if rate is None else step_time(work, rate), known, rate)


def measured(work: Workload, *known: Measurement, rate: Rate | None = RATE) -> MeasuredStep:
    found = found_for(work, *known, rate=rate)
    assert found is not None
    return found


def test_the_same_work_gives_what_was_measured(work: Workload) -> None:
    found = measured(work, steady(work, **TWO_S))
    assert found.step.likely == pytest.approx(2.0)
    assert found.step.high / 2.0 == pytest.approx(BETWEEN_RUNS["cpu"])
    assert (found.basis, found.text) == ("probe", "measured on this machine, 2026-11-21 (probe)")
    assert found.factor == pytest.approx(2.0 / step_time(work, RATE).step.likely)


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
    found = measured(work, steady(work, step_s=2.0, **newest), *(steady(work, **values) for values in others))
    assert (found.step.low, found.step.high) == pytest.approx((low, high))
    assert found_for(work, steady(work, model="other")) is None


def test_another_batch_or_length_puts_the_formula_right_and_is_wider(work: Workload) -> None:
    known, formula = steady(work, **TWO_S), step_time(work, RATE).step.likely
    same, larger, further = (measured(work.with_micro_batch(size), known) for size in (4, 8, 32))
    assert larger.step.likely == pytest.approx(2.0 / formula * step_time(work.with_micro_batch(8), RATE).step.likely)
    assert larger.text == f"formula × {2.0 / formula:.2g}, from one other measurement on this machine (2026-11-21)"
    widths = [one.step.high / one.step.low for one in (same, larger, further)]
    assert widths == sorted(set(widths))
    shorter = steady(work, usual_length=work.length // 2, step_s=2.0, step_high_s=2.1)
    other = steady(work, model="other", config=other_model(work, 12).model_config, own_step_s=90.0)
    assert measured(work, other, shorter).step.likely > 3.0, "its own model speaks before others"
    unknown_card = measured(work, known, rate=None)
    assert (unknown_card.factor, unknown_card.step.likely) == (None, pytest.approx(2.0))
    for one in (shorter, steady(work, micro_batch=9)):
        assert found_for(work, one, rate=None) is None
    # Rows of like length speak before newer ones of others.
    assert measured(work, shorter, known) == same


def test_the_start_is_that_of_whole_runs(work: Workload) -> None:
    assert measured_start(work, (steady(work, start_s=8.0),)) is None
    runs = (steady(work, source="run", start_s=8.0), steady(work, source="run", start_s=12.0))
    found = measured_start(work, runs)
    assert found is not None
    assert found.low < 8.0 and found.high > 12.0


def test_what_other_models_took_corrects_the_formula(work: Workload) -> None:
    """Two of them, each 1.5 times its own formula, in processor time: the clock's seconds beside other jobs say nothing."""
    planned = step_time(work, RATE)
    others = [other_model(work, layers) for layers in (12, 2)]
    known = [
        steady(
            work, model="other", config=one.model_config, step_s=90.0, own_step_s=1.5 * step_time(one, RATE).step.likely
        )
        for one in others
    ]
    found = measured(work, *known)
    assert found.basis == "others" and found.factor == pytest.approx(1.5, rel=1e-3)
    assert found.step.likely == pytest.approx(1.5 * planned.step.likely, rel=1e-3)
    assert CARRIED <= found.step.high / found.step.likely < spread_of(work, RATE)
    assert found.text == "formula × 1.5, from 2 other measurements on this machine (2026-11-21)"


def test_other_measurements_that_disagree_widen_what_they_say(work: Workload) -> None:
    other = other_model(work, 12)
    formula = step_time(other, RATE).step.likely
    slow, quick = (
        steady(work, model="other", config=other.model_config, own_step_s=times * formula) for times in (6.0, 3.0)
    )
    alone, both = measured(work, slow), measured(work, slow, quick)
    assert both.step.high / both.step.low > alone.step.high / alone.step.low
    family = json.dumps({**json.loads(slow.config), "model_type": "bert", "max_position_embeddings": 512})
    for change in ({"precision": "bf16"}, {"config": ""}, {"lora_rank": 8}, {"config": family}):
        assert found_for(work, replace(slow, **change)) is None


def test_a_gpu_that_waited_for_launches_says_nothing_of_one_that_computes() -> None:
    """A smoke run of the tiny model on an H100, before the plan of ESM-2 650M there: it would have been 64 to 236 s for 42."""
    spec = find_gpu("H100 SXM")
    assert spec is not None
    rate = gpu_rate(spec, "bf16", tf32=True)

    def work_of(name: str, micro: int, length: int) -> Workload:
        wanted = config(name, batch__micro_batch_size=micro, batch__sequence_length=length)
        made = plan(real(machine(gpu="H100 SXM")), wanted).work
        assert made is not None
        return made

    large = work_of("esm2-650m", 42, 512)
    for work, carried in ((work_of("esm2-tiny", 4, 64), False), (work_of("esm2-150m", 64, 512), True)):
        step_s = 3 * step_time(work, rate).step.likely
        slow = steady(work, machine="cuda:an H100", model="other", config=work.model_config, step_s=step_s)
        assert (found_for(large, slow, rate=rate) is not None) == carried


def other_model(work: Workload, layers: int) -> Workload:
    config = {**json.loads(work.model_config), "num_hidden_layers": layers}
    architecture, _ = read_architecture(config, work.task)
    assert architecture is not None
    return replace(work, architecture=architecture, model_config=json.dumps(config, sort_keys=True))
