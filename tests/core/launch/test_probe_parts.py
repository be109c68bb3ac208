"""What a probe is told, what forbids it, and what its lines mean."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import CannotRunError, Finding, UsageError
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.launch.prepare import _plan_json
from trainwiz.core.launch.probe import check_probe
from trainwiz.core.launch.probe_order import (
    ProbeOrder,
    measured_accumulation,
    probe_config,
    probe_order,
    probe_result,
    rows_of,
)
from trainwiz.core.plan.gather import planned_fields
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import config, machine, plan, real, rows
from tests.each import each

CPU = replace(real(machine(gpu=None)), cpu_model="Some CPU")


def demo(here: Machine = CPU, data: DataSummary | None = None, **values: Any) -> Plan:
    wanted: dict[str, Any] = {"training__max_steps": 50, "batch__micro_batch_size": 4, "batch__sequence_length": 64}
    return plan(here, config("esm2-8m", **{**wanted, **values}), data)


def test_a_probe_trains_what_the_plan_trains_and_nothing_else() -> None:
    made = demo(batch__gradient_accumulation_steps=32, evaluation__every_epoch=True)
    probed = probe_config(made)
    RunConfig.model_validate(probed.model_dump())
    assert probed.batch.gradient_accumulation_steps == 4
    assert probed.batch.micro_batch_size == made.config.batch.micro_batch_size
    assert probed.engine == made.config.engine
    assert (probed.model.init, probed.model.architecture) == ("scratch", made.config.model.architecture)
    assert probed.checkpoint.every_steps == probed.evaluation.every_steps == probed.training.max_steps
    assert not probed.evaluation.every_epoch and probed.logging.report_to == ["none"]
    slow = replace(made, time=replace(made.time, step_high_s=32 * 30.0))
    assert (measured_accumulation(made), measured_accumulation(slow)) == (4, 2)


def test_an_order_survives_its_file(tmp_path: Path) -> None:
    order = probe_order(demo(data=rows()), rows(), 60.0, search=True)
    order.write(tmp_path)
    assert ProbeOrder.read(tmp_path) == order
    assert (order.lengths, order.target_length, order.micro_batch, order.length) == ([150, 300, 600], 0, 4, 64)
    assert not order.search, "a search on a CPU could take all RAM"
    made = demo()
    on_gpu = replace(made, config=made.config.with_values({"engine.device": "cuda"}, "you"))
    assert probe_order(on_gpu, None, 60.0, search=True).search


@each(("source", "data", "made_from"), [
    ("sample-proteins", rows(1000), "data"),
    ("sample-proteins", rows(10_000_000), "lengths"),
    ("sample-proteins", replace(rows(1000), bytes_on_disk=1 << 33), "lengths"),
    ("owner/on-the-hub", rows(1000), "lengths"),
    ("owner/on-the-hub", replace(rows(1000), lengths=()), "longest"),
    ("sample-proteins", replace(rows(1000), rows=0), "longest"),
    ("sample-proteins", None, "longest"),
])  # fmt: skip
def test_only_small_data_that_are_here_are_read(source: str, data: DataSummary | None, made_from: str) -> None:
    request = config(data__sources=[{"name": source}])
    assert rows_of(request, data) == made_from


def test_another_machine_and_several_nodes_are_asked_wrongly() -> None:
    with pytest.raises(UsageError, match="probe measures this machine, but the plan is for another one"):
        check_probe(demo(machine(gpu=None)))
    with pytest.raises(UsageError, match=r"the plan has 2: set engine\.nodes=1"):
        check_probe(demo(engine__nodes=2))
    # Only ordinary steps will be a measurement.
    for mode, kept in (({}, True), ({"mode__overfit_batches": 2}, False), ({"mode__trace_steps": 3}, False)):
        made = demo(**mode)
        assert (_plan_json(made, made.config)["planned_measurement"] is not None) == kept
    unknown = replace(demo(), work=None)
    with pytest.raises(UsageError, match="The architecture of the model esm2-8m is unknown"):
        check_probe(unknown)
    check_probe(demo())


def test_errors_that_a_step_would_meet_forbid_a_probe() -> None:
    made = demo()

    def with_error(code: str, device: str = "cpu", forced: bool = False) -> Plan:
        one = Finding(code, "error", "somewhere", f"{code}!")
        changed = made.config.with_values({"engine.device": device}, "you").model_copy(update={"forced": forced})
        return replace(made, findings=(one,), config=changed)

    check_probe(with_error("missing_data"))
    check_probe(with_error("does_not_fit", "cuda"))
    check_probe(with_error("does_not_fit", forced=True))
    for code in ("does_not_fit", "bf16_unsupported", "something_new"):
        with pytest.raises(CannotRunError, match=f"{code}!"):
            check_probe(with_error(code))


def order(**changes: Any) -> ProbeOrder:
    plain = ProbeOrder(
        ends_s=100.0, accumulation=2, micro_batch=4, length=64, target_length=0, rows="lengths", lengths=(64,)
    )
    return replace(plain, **changes)


def warm() -> dict[str, Any]:
    return {"event": "warm", "seconds": 5.0, "micro_batch": 4, "step": 1}


def step(seconds: float) -> dict[str, Any]:
    return {"event": "step", "seconds": seconds, "tokens": 500, "micro_batch": 4}


def result_of(lines: list[dict[str, Any]], **changes: Any) -> Any:
    planned = planned_fields(demo())
    assert planned is not None
    return probe_result(order(**changes), planned, lines, 0.0)


def test_lines_of_a_probe_become_a_measurement() -> None:
    found = result_of(
        [
            {"event": "ready", "time_s": 9.0},
            warm(),
            {"event": "memory", "peak_allocated_bytes": 10, "peak_reserved_bytes": 20, "host_rss_bytes": 30},
            *[step(seconds) for seconds in (1.0, 1.1, 0.9, 1.0, 1.0)],
            {"event": "trial", "micro_batch": 8, "fits": True, "allocated_bytes": 40, "seconds": 0.5},
            {"event": "trial", "micro_batch": 16, "fits": False},
            {"event": "largest", "micro_batch": 4, "why": "the time limit was reached"},
            {"event": "largest", "micro_batch": 8, "why": "16 does not fit"},
            {"event": "end"},
        ]
    )
    one = found.measurement
    assert (one.source, one.steps, one.step_s, one.step_low_s, one.step_high_s) == ("probe", 5, 1.0, 0.9, 1.1)
    assert (one.start_s, one.tokens_per_step, one.largest_micro_batch) == (9.0, 500.0, 8)
    assert (one.peak_allocated_bytes, one.peak_reserved_bytes) == (10, 20)
    assert (one.device_used_bytes, one.host_rss_bytes) == (None, 30)
    assert [(trial["micro_batch"], trial["fits"]) for trial in found.trials] == [(8, True), (16, False)]
    assert found.searched and one.largest_note == "16 does not fit"
    json.dumps(found.to_json(), allow_nan=False)


@each("lines", [[], [{"event": "ready", "time_s": 9.0}], [warm()]])
def test_nothing_measured_is_no_measurement(lines: list[dict[str, Any]]) -> None:
    found = result_of(lines)
    assert found.measurement is None
