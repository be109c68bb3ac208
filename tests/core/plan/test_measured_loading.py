"""data.workers by what earlier runs and probes measured on the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.traced import Evidence
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.plan.gather import planned_fields
from trainwiz.core.plan.loading import SMALL_ROWS
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import config, machine, plan, real, rows
from tests.each import each

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
    known = tuple(Measurement.from_json({**fields, **plain, **pace, **one}) for one in measured)
    return plan(here, request, rows(), evidence=Evidence(measurements=known))


def workers(made: Plan) -> tuple[int | None, str]:
    return made.config.data.workers, next(one.reason for one in made.choices if one.key == "data.workers")


@each(
    ("here", "measured", "expected", "why"),
    [
        # 2 workers load for 2 s what is computed in 1.5: 2.7 of them, and a tenth more.
        (ON_GPU, {"workers": 2, "data_wait_s": 0.5}, 3, f"run of {DAY} waited 25% of its time (workers: 2); 3 would"),
        # Of 4 micro-batches it keeps 2 ready and makes 2 in the 0.5 s of waiting: all are ready next time.
        (ON_GPU, {"workers": 1, "data_wait_s": 0.5, "prefetch": 2}, 1, "25% of its time (workers: 1); 1 would"),
        (ON_GPU, {"workers": 4, "data_wait_s": 1.8}, 5, "the cores allow 5"),
        (ON_GPU, {"workers": 2, "data_wait_s": 0.02}, 2, f"with as many workers, the run of {DAY} waited 1%"),
        (ON_GPU, {"workers": 0, "data_wait_s": 0.02}, 5, "6 cores"),
        (ON_GPU, {"workers": 3, "loading_s": 0.002}, 1, f"and 500 ms to compute (measured on {DAY}): 1 worker hides"),
        # Of the 0.5 s of a micro-batch the process itself spent 0.2 on making it.
        (ON_CPU, {"workers": 0, "loading_s": 0.2}, 1, "200 ms to load and 300 ms to compute"),
        (ON_CPU, {"workers": 0, "loading_s": 0.01}, 0, "10 ms to load"),
        (ON_CPU, {"workers": 0, "data_wait_s": 1.2}, 2, "waited 60% of its time (workers: 0); 2 would"),
        (ON_CPU, {"workers": 0, "data_wait_s": 0.01}, 0, "with as many"),
    ],
)
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


def test_ram_bounds_it_and_the_users_number_stays() -> None:
    short = replace(ON_GPU, ram_available_bytes=ON_GPU.ram_total_bytes // 16)
    found, why = workers(planned(short, {"workers": 1, "data_wait_s": 1.5}))
    assert found is not None and found < 5 and "RAM budget" in why
    assert workers(planned(ON_GPU, {"workers": 2, "data_wait_s": 0.5}, data__workers=1))[0] == 1


def test_pinned_batches_of_a_whole_step_are_ready_when_it_begins() -> None:
    made = plan(machine(), config(**{**SIZES, "batch__gradient_accumulation_steps": 64}), rows(SMALL_ROWS - 1))
    assert (made.config.data.workers, made.config.data.prefetch) == (2, 32)
    why = next(one.reason for one in made.choices if one.key == "data.prefetch")
    assert "its 64 micro-batches" in why and "all are ready" in why
    few = plan(machine(), config(**{**SIZES, "batch__gradient_accumulation_steps": 4}), rows(SMALL_ROWS - 1))
    assert few.config.data.prefetch == 2
    long = plan(machine(), config(**SIZES, batch__sequence_length=200_000, data__workers=2), rows(length=100_000))
    assert long.config.data.prefetch is not None and long.config.data.prefetch <= 2
