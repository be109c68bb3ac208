import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware import host
from trainwiz.core.history import run as run_module
from trainwiz.core.history.measurement import Measurement, cpu_key
from trainwiz.core.history.run import run_measurement
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunState

from tests.core.history.measurements import measurement
from tests.each import each

STARTED_S = 1_000_000.0
MEASURED = ("measured_at", "source", "steps", "step_s", "step_low_s", "step_high_s")


def planned(**changes: Any) -> dict[str, Any]:
    here = cpu_key(host.cpu_model(), host.count_cores())
    document = {**measurement(machine=here).to_json(), **changes}
    return {key: value for key, value in document.items() if key not in MEASURED}


def line(step: int, step_s: float, **more: Any) -> dict[str, Any]:
    """Started 10 s after the launcher; no other time than that of steps."""
    row = {"time_s": STARTED_S + 10.0 + step, "step": step, "loss": 1.0, "step_s": step_s, "tokens": 1000 * step}
    return {**row, **more}


def finished(tmp_path: Path, rows: list[dict[str, Any]], **template: Any) -> tuple[RunFolder, RunState]:
    run = RunFolder(tmp_path)
    run.plan_json.write_text(json.dumps({"planned_measurement": planned(**template)}))
    run.metrics_jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended_s = max(row["time_s"] for row in rows) + 2.0
    engine = {"device": "cpu", "world_size": 1, "micro_batch_size": 8, "gradient_accumulation_steps": 2}
    return run, RunState(status="finished", ended_s=ended_s, attempts=[Attempt(1, STARTED_S)], engine=engine)


def measured(tmp_path: Path, rows: list[dict[str, Any]], **template: Any) -> Measurement:
    found = run_measurement(*finished(tmp_path, rows, **template))
    assert found is not None
    return found


def steps(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    """Lines of a second each."""
    return [line(step, 1.0, **more) for step in range(first, last + 1)]


def test_a_finished_run_is_a_measurement(tmp_path: Path) -> None:
    found = measured(tmp_path, [line(1, 3.0), *steps(2, 10), line(11, 2.0)])
    assert (found.source, found.steps, found.step_s, found.step_low_s, found.step_high_s) == ("run", 10, 1.0, 1.0, 1.0)
    assert (found.tokens_per_step, found.micro_batch, found.data_wait_s) == (1000, 8, None)
    # 11 s to the first line, of which its step took 3.
    assert found.start_s == pytest.approx(8.0)
    assert found.measured_at.startswith("1970-01-12")
    assert measured(tmp_path, [line(4, 3.0), *steps(5, 10)]).start_s == pytest.approx(14.0 - 12.0)
    # Lines count as the steps that they are the mean of.
    found = measured(tmp_path, [line(1, 9.0), line(2, 5.0), line(100, 1.0)])
    assert (found.steps, found.step_s, found.step_high_s) == (99, 1.0, 1.0)


def test_the_wait_for_data_is_the_mean_of_the_counted_steps(tmp_path: Path) -> None:
    """A single stall is no wait, and bursts are."""
    rows = [line(3, 1.0, data_wait_s=0.4, own_s=0.7), line(4, 1.0, data_wait_s=0.1, own_s=0.6)]
    found = measured(tmp_path, [line(1, 3.0, data_wait_s=2.5), *rows], data="0123", workers=2)
    assert (found.data_wait_s, found.data, found.workers, found.own_step_s) == (pytest.approx(0.3), "0123", 2, 0.7)
    for waits, expected in (((0.01,) * 99 + (60.0,), 0.01), ((0.4, 0.0, 0.0, 0.0) * 25, 0.1)):
        rows = [line(step, 1.0, data_wait_s=wait) for step, wait in enumerate((0.0, *waits), start=1)]
        assert measured(tmp_path, rows, data="0123").data_wait_s == pytest.approx(expected, rel=0.1)


def test_a_run_whose_beginning_is_not_read_has_a_pace_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = steps(1, 30, peak_allocated_bytes=10**9)
    whole = measured(tmp_path, rows)
    assert whole.start_s and whole.peak_allocated_bytes == 10**9
    monkeypatch.setattr(run_module, "TAIL_BYTES", 2_000)
    tail = measured(tmp_path, rows)
    assert (tail.step_s, tail.start_s, tail.peak_allocated_bytes) == (1.0, None, None)


@each("changes", [
    {"status": "failed"},
    {"status": "running"},
    {"engine": {}},
    {"engine": {"device": "cuda:0", "world_size": 1, "device_name": "RTX 3090"}},
    {"engine": {"device": "cpu", "world_size": 2}},
    {"engine": {"device": "cpu", "world_size": 1, "micro_batch_size": 4}},
    {"attempts": [Attempt(1, STARTED_S), Attempt(2, STARTED_S, because="cuda_oom", changes={"data.workers": 1})]},
])  # fmt: skip
def test_a_run_that_is_not_what_was_planned_here_says_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    run, state = finished(tmp_path, steps(1, 19))
    assert run_measurement(run, state) is not None and run_measurement(run, replace(state, **changes)) is None
    # Nor does a folder that another machine planned, or a broken plan.
    assert run_measurement(*finished(tmp_path, steps(1, 19), machine="cpu:Another CPU:64 cores")) is None
    for text in ("{", "[]", '{"planned_measurement": 3}', '{"planned_measurement": {}}'):
        run.plan_json.write_text(text)
        assert run_measurement(run, state) is None


def test_a_stopped_run_counts_from_some_steps_on(tmp_path: Path) -> None:
    for last, status, counts in ((4, "finished", True), (4, "stopped", False), (8, "stopped", True)):
        run, state = finished(tmp_path, steps(1, last))
        assert (run_measurement(run, replace(state, status=status)) is not None) is counts


def test_rows_of_an_earlier_attempt_and_broken_lines_do_not_count(tmp_path: Path) -> None:
    before = [{**line(step, 50.0), "time_s": STARTED_S - 500 + step} for step in range(1, 6)]
    resumed = {"time_s": STARTED_S + 9.0, "resumed_from": 5}
    run, state = finished(tmp_path, [*before, resumed, *steps(6, 19)])
    with run.metrics_jsonl.open("a") as lines:
        lines.write('{"step": 20, "los\n[]\n')
    found = run_measurement(run, state)
    assert found and (found.steps, found.step_s, found.start_s) == (13, 1.0, None)
    # A resume or an evaluation before the first line leaves the start open.
    early = {"time_s": STARTED_S + 13.0, "step": 2, "eval_loss": 1.0}
    assert measured(tmp_path, [early, *(line(step, 1.0) for step in range(5, 20, 5))]).start_s is None


def test_what_grew_in_an_evaluation_is_not_the_peak_of_training(tmp_path: Path) -> None:
    def peak(step: int, allocated: int) -> dict[str, Any]:
        return line(step, 1.0, peak_allocated_bytes=allocated, peak_reserved_bytes=allocated + 5)

    evaluation = {"time_s": STARTED_S + 13.5, "step": 3, "eval_loss": 1.0}
    before = [peak(1, 90), peak(2, 100), peak(3, 100), evaluation]
    for after, peaks in (([peak(4, 100)], (100, 105)), ([peak(4, 300), peak(5, 300)], (100, None))):
        found = measured(tmp_path, [*before, *after])
        assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == peaks


def test_ram_is_that_of_the_fullest_process_without_its_workers(tmp_path: Path) -> None:
    run, state = finished(tmp_path, steps(1, 8))
    sizes = [("launcher", 999), ("trainer", 100), ("trainer", 120), ("loader", 30), ("loader", 50)]
    processes = [{"role": role, "rss_bytes": size} for role, size in sizes]
    run.system_jsonl.write_text(json.dumps({"processes": processes}) + "\n" + json.dumps({"processes": 3}) + "\n")
    found = run_measurement(run, state)
    assert found is not None and found.host_rss_bytes == 120
