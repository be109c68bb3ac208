"""Tokens, energy and the origin of the pace in a plan; how often a run saves, evaluates and generates."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import device_key
from trainwiz.core.history.measurement import measurement_of as measurement_from
from trainwiz.core.plan.gather import planned_fields
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.times import Counts, count_events

from tests.core.history.measurements import measurement_of
from tests.core.plan.machines import config, machine, plan, real, rows
from tests.each import each

DATA = DataSummary(rows=1_000_000, rows_exact=True, lengths=(100, 300))
STEPS = {"training__max_steps": 1000, "batch__target_samples": 64}


def made(here: Machine, **values: object) -> Plan:
    return plan(here, config(**{**STEPS, **values}), DATA)


def test_tokens_energy_and_its_cost() -> None:
    whole = made(machine("RTX 3090"), planning__energy_price_per_kwh=0.4, planning__currency="EUR")
    run = whole.time
    assert run.total_tokens == 1000 * whole.batch.effective_tokens
    assert run.basis_text == "from published runs on similar GPUs"
    assert run.real_tokens == 1000 * (whole.batch.real_tokens or 0) == 1000 * 64 * 200
    assert run.energy_low_kwh and run.energy_high_kwh and run.total_low_s and run.total_high_s
    assert run.energy_high_kwh == pytest.approx((350 + 200) / 0.85 * run.total_high_s / 3.6e6)
    assert run.energy_low_kwh < run.energy_high_kwh
    assert run.energy_cost_high == pytest.approx(0.4 * run.energy_high_kwh) and run.currency == "EUR"
    # The driver's limit is taken, and a card that waits draws less.
    here = machine("RTX 3090")
    capped = made(replace(here, gpus=(replace(here.gpus[0], power_limit_w=200.0),))).time
    assert capped.energy_high_kwh == pytest.approx(run.energy_high_kwh * (200 + 200) / (350 + 200))
    small = {"training__max_steps": 100, "batch__micro_batch_size": 1, "batch__gradient_accumulation_steps": 1}
    idle = plan(machine("H100 SXM"), config("esm2-8m", **small), DATA).time
    assert idle.verdict == "idle"
    assert idle.energy_high_kwh == pytest.approx((0.7 * 700 + 200) / 0.85 * (idle.total_high_s or 0) / 3.6e6)


@each("compiled", [True, False])
def test_what_was_measured_with_torch_compile_says_nothing_of_what_runs_without_it(compiled: bool) -> None:
    here = real(machine(gpu=None))
    wanted = {**STEPS, "engine__compile": compiled}
    first = plan(here, config(**wanted), DATA)
    assert first.work is not None and first.time.basis == "formula"
    known = measurement_of(first.work, machine=device_key(here, "cpu"), threads=None, host_rss_bytes=1 << 31)
    for measured in (True, False):
        evidence = Evidence(measurements=(replace(known, compiled=measured),))
        again = plan(here, config(**wanted), DATA, evidence=evidence)
        assert (again.time.basis != "formula") == (again.memory.tier == "measured") == (measured == compiled)


# How often a run saves, evaluates and generates, beside the schedule that the training itself keeps.


def counts(steps: int = 100, epochs: float | None = 4.0, **values: object) -> Counts:
    return count_events(config(**values), steps, epochs)


SAVED = {"checkpoint__every_steps": 25, "evaluation__generate": True}
BLEU = {"checkpoint__keep_best": True, "evaluation__metric": "eval_bleu", "evaluation__generate_at": "end"}


def test_counts() -> None:
    """Of evaluations the next test says more."""
    assert counts(checkpoint__every_steps=30) == Counts(4, 4, 0)
    assert counts(**SAVED) == counts(**SAVED, **BLEU) == Counts(4, 4, 4)
    assert counts(**SAVED, evaluation__generate_at="end") == Counts(4, 4, 1)
    assert counts(**{**SAVED, "checkpoint__every_steps": 10}, evaluation__generate_at="epoch") == Counts(10, 10, 4)


@each(("every", "saves", "every_epoch", "keep_best"), [
    (None, 25, False, False), (7, 30, False, False), (20, 100, True, False), (7, 25, True, True), (20, 30, False, True),
    (None, 30, True, True),
])  # fmt: skip
def test_the_training_does_what_is_counted(every: int | None, saves: int, every_epoch: bool, keep_best: bool) -> None:
    from trainwiz.core.training.evaluation import EvaluationSchedule
    from transformers import TrainerState

    values = {"evaluation__every_steps": every, "evaluation__every_epoch": every_epoch,
              "checkpoint__every_steps": saves, "checkpoint__keep_best": keep_best}  # fmt: skip
    schedule = EvaluationSchedule(config(**values), int, with_saves=keep_best)
    # An epoch that the run does not finish ends with it.
    for epochs in (0.5, 2.5, 4.0, 10.0):
        states = [TrainerState(global_step=step, max_steps=100, epoch=step * epochs / 100) for step in range(1, 101)]
        done = sum(schedule.due(state, saves=state.global_step % saves == 0) for state in states)
        assert counts(100, epochs, **values).evaluations == done


ON_GPU = real(machine("RTX 3090", 1, cores=6), torch="2.13")
ON_CPU = real(machine(None, cores=6), torch="2.13")
SIZES = {"batch__micro_batch_size": 8, "batch__gradient_accumulation_steps": 4}
DAY = "2026-11-21"


def planned(here: Machine, *measured: dict[str, Any], **changes: Any) -> Plan:
    """With measurements of this very plan, the newest first."""
    request = config("esm2-8m", **{**SIZES, **changes})
    alone = plan(here, config("esm2-8m", **SIZES), rows())
    fields = planned_fields(alone)
    assert fields is not None
    plain = {"measured_at": f"{DAY}T10:00:00+00:00", "source": "run", "steps": 9}
    pace = {"step_s": 2.0, "step_low_s": 2.0, "step_high_s": 2.0}
    found = (measurement_from({**fields, **plain, **pace}, one) for one in measured)
    known = tuple(one for one in found if one is not None)
    assert len(known) == len(measured)
    return plan(here, request, rows(), evidence=Evidence(measurements=known))


def workers(made: Plan) -> tuple[int | None, str]:
    return made.config.data.workers, made.config.origin("data.workers").reason


@each(("here", "measured", "expected", "why"), [
    # 2 workers load for 2 s what is computed in 1.5: 2.7 of them, and a tenth more.
    (ON_GPU, {"workers": 2, "data_wait_s": 0.5}, 3, f"run of {DAY} waited 25% of its time for data (workers: 2)"),
    (ON_GPU, {"workers": 1, "data_wait_s": 0.5, "prefetch": 2}, 2, "25% of its time for data (workers: 1)"),
    (ON_GPU, {"workers": 4, "data_wait_s": 1.8}, 5, "the cores allow 5"),
    (ON_GPU, {"workers": 2, "data_wait_s": 0.02}, 2, f"run of {DAY} waited 1%"),
    (ON_GPU, {"workers": 0, "data_wait_s": 0.02}, 5, "6 cores"),
    (ON_CPU, {"workers": 0, "data_wait_s": 1.2}, 2, "waited 60% of its time for data (workers: 0)"),
    (ON_CPU, {"workers": 0, "data_wait_s": 0.01}, 0, "waited 0%"),
    (replace(ON_GPU, ram_available_bytes=3425 * 2**20), {"workers": 1, "data_wait_s": 1.5}, 3, "RAM budget"),
])  # fmt: skip
def test_what_was_measured_leads(here: Machine, measured: dict[str, Any], expected: int, why: str) -> None:
    found, reason = workers(planned(here, measured))
    assert found == expected and why in reason


def test_the_newest_counts_and_other_rows_or_models_do_not() -> None:
    newest = {"workers": 3, "data_wait_s": 0.02}
    assert workers(planned(ON_GPU, newest, {"workers": 2, "data_wait_s": 0.5}))[0] == 3
    nothing = workers(planned(ON_GPU))
    for other in ({"data": "another"}, {"model": "another"}, {"length": 64}, {"workers": None}):
        assert workers(planned(ON_GPU, {**newest, **other})) == nothing
    assert workers(planned(ON_GPU, newest, data__max_characters=100)) == nothing
