from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware import host
from trainwiz.core.history import run as run_module
from trainwiz.core.history.measurement import cpu_key
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
    return {
        "time_s": STARTED_S + 10.0 + step,
        "step": step,
        "loss": 1.0,
        "step_s": step_s,
        "tokens": 1000 * step,
        **more,
    }


def finished(tmp_path: Path, rows: list[dict[str, Any]], **template: Any) -> tuple[RunFolder, RunState]:
    run = RunFolder(tmp_path)
    run.plan_json.write_text(json.dumps({"planned_measurement": planned(**template)}))
    run.metrics_jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    last = max((row["time_s"] for row in rows), default=STARTED_S)
    return run, RunState(
        status="finished",
        ended_s=last + 2.0,
        attempts=[Attempt(1, STARTED_S)],
        engine={"device": "cpu", "world_size": 1, "micro_batch_size": 8, "gradient_accumulation_steps": 2},
    )


def test_a_finished_run_is_a_measurement(tmp_path: Path) -> None:
    rows = [line(1, 3.0), *[line(step, 1.0) for step in range(2, 11)], line(11, 2.0)]
    found = run_measurement(*finished(tmp_path, rows))
    assert found is not None
    assert (found.source, found.steps, found.step_s, found.step_low_s, found.step_high_s) == ("run", 10, 1.0, 1.0, 1.0)
    assert found.tokens_per_step == 1000
    # 11 s to the first line, of which its step took 3, and 2 s of closing.
    assert found.start_s == pytest.approx(10.0)
    assert found.micro_batch == 8
    assert found.measured_at.startswith("1970-01-12")


@pytest.mark.parametrize("change", [{"batch.eval_micro_batch_size": 2}, {"data.workers": 1}])
def test_what_recovery_changed_is_no_measurement_of_the_plan(tmp_path: Path, change: dict[str, int]) -> None:
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 11)])
    assert run_measurement(run, state) is not None
    state.attempts.append(Attempt(2, STARTED_S, because="cuda_oom", changes=change))
    assert run_measurement(run, state) is None


def test_the_wait_for_data_is_the_mean_of_the_counted_steps(tmp_path: Path) -> None:
    rows = [line(1, 3.0, data_wait_s=2.5), line(3, 1.0, data_wait_s=0.4), line(4, 1.0, data_wait_s=0.1)]
    found = run_measurement(*finished(tmp_path, rows, data="0123", workers=2))
    assert found is not None and found.data_wait_s == pytest.approx(0.3)
    assert (found.data, found.workers) == ("0123", 2)
    unknown = run_measurement(*finished(tmp_path, [line(step, 1.0) for step in range(1, 5)]))
    assert unknown is not None and unknown.data_wait_s is None


@pytest.mark.parametrize(("waits", "expected"), [((0.01,) * 99 + (60.0,), 0.01), ((0.4, 0.0, 0.0, 0.0) * 25, 0.1)])
def test_a_single_stall_is_no_wait_and_bursts_are(tmp_path: Path, waits: tuple[float, ...], expected: float) -> None:
    lines = [line(step, 1.0, data_wait_s=wait) for step, wait in enumerate((0.0, *waits), start=1)]
    found = run_measurement(*finished(tmp_path, lines, data="0123", workers=2))
    assert found is not None and found.data_wait_s == pytest.approx(expected, rel=0.1)


def test_a_first_line_of_several_steps_is_not_counted_as_loading(tmp_path: Path) -> None:
    found = run_measurement(*finished(tmp_path, [line(4, 3.0), *[line(step, 1.0) for step in range(5, 11)]]))
    assert found is not None
    # 14 s to the first line, of which its steps took 4 x 3, and 2 s of closing.
    assert found.start_s == pytest.approx(14.0 - 12.0 + 2.0)


def test_a_run_whose_beginning_is_not_read_has_a_pace_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [line(step, 1.0, peak_allocated_bytes=10**9) for step in range(1, 31)]
    whole = run_measurement(*finished(tmp_path, rows))
    monkeypatch.setattr(run_module, "MOST_LINES", 20)
    tail = run_measurement(*finished(tmp_path, rows))
    assert whole is not None and whole.start_s and whole.peak_allocated_bytes == 10**9
    assert tail is not None and tail.step_s == 1.0
    assert tail.start_s is None and tail.peak_allocated_bytes is None


def test_lines_count_as_the_steps_that_they_are_the_mean_of(tmp_path: Path) -> None:
    rows = [line(1, 9.0), line(2, 5.0), line(100, 1.0)]
    found = run_measurement(*finished(tmp_path, rows))
    assert found is not None
    assert (found.steps, found.step_s, found.step_high_s) == (99, 1.0, 1.0)


@each(
    "changes",
    [
        {"status": "failed"},
        {"status": "running"},
        {"engine": {}},
        {"engine": {"device": "cuda:0", "world_size": 1, "device_name": "RTX 3090"}},
        {"engine": {"device": "cpu", "world_size": 2}},
        {"engine": {"device": "cpu", "world_size": 1, "micro_batch_size": 4}},
    ],
)
def test_a_run_that_is_not_what_was_planned_here_says_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 20)])
    assert run_measurement(run, state) is not None
    for name, value in changes.items():
        setattr(state, name, value)
    assert run_measurement(run, state) is None


@each("text", ["", "{", "[]", '{"planned_measurement": 3}', '{"planned_measurement": {}}'])
def test_a_broken_plan_says_nothing(tmp_path: Path, text: str) -> None:
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 20)])
    run.plan_json.write_text(text)
    assert run_measurement(run, state) is None


def test_a_stopped_run_counts_from_some_steps_on(tmp_path: Path) -> None:
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 5)])
    assert run_measurement(run, state) is not None
    state.status = "stopped"
    assert run_measurement(run, state) is None
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 9)])
    state.status = "stopped"
    assert run_measurement(run, state) is not None


def test_rows_of_an_earlier_attempt_and_broken_lines_do_not_count(tmp_path: Path) -> None:
    before = [{**line(step, 50.0), "time_s": STARTED_S - 500 + step} for step in range(1, 6)]
    after = [line(step, 1.0) for step in range(6, 20)]
    resumed = {"time_s": STARTED_S + 9.0, "resumed_from": 5}
    run, state = finished(tmp_path, [*before, resumed, *after])
    with run.metrics_jsonl.open("a") as lines:
        lines.write('{"step": 20, "los\n[]\n')
    found = run_measurement(run, state)
    assert found is not None
    assert (found.steps, found.step_s) == (13, 1.0)
    assert found.start_s == pytest.approx(16.0 - 1.0 + 2.0)


def test_an_evaluation_before_the_first_line_leaves_the_start_open(tmp_path: Path) -> None:
    rows = [line(step, 1.0) for step in range(5, 20, 5)]
    early = {"time_s": STARTED_S + 13.0, "step": 2, "eval_loss": 1.0}
    found = run_measurement(*finished(tmp_path, [early, *rows]))
    assert found is not None and found.start_s is None
    found = run_measurement(*finished(tmp_path, [rows[0], {**early, "step": 6, "time_s": STARTED_S + 16.5}, *rows[1:]]))
    assert found is not None and found.start_s is not None


def test_what_grew_in_an_evaluation_is_not_the_peak_of_training(tmp_path: Path) -> None:
    def peak(step: int, allocated: int) -> dict[str, Any]:
        return line(step, 1.0, peak_allocated_bytes=allocated, peak_reserved_bytes=allocated + 5)

    evaluation = {"time_s": STARTED_S + 13.5, "step": 3, "eval_loss": 1.0}
    quiet = [peak(1, 90), peak(2, 100), peak(3, 100), evaluation, peak(4, 100)]
    found = run_measurement(*finished(tmp_path, quiet))
    assert found is not None
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes, found.evaluation_peak_bytes) == (100, 105, None)
    found = run_measurement(*finished(tmp_path, [*quiet[:4], peak(4, 300), peak(5, 300)]))
    assert found is not None
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes, found.evaluation_peak_bytes) == (100, None, 300)


def test_ram_is_that_of_the_fullest_process_without_its_workers(tmp_path: Path) -> None:
    run, state = finished(tmp_path, [line(step, 1.0) for step in range(1, 9)])
    processes = [
        {"role": "launcher", "rss_bytes": 999},
        {"role": "trainer", "rss_bytes": 100},
        {"role": "trainer", "rss_bytes": 120},
        {"role": "loader", "rss_bytes": 30},
        {"role": "loader", "rss_bytes": 50},
    ]
    run.system_jsonl.write_text(json.dumps({"processes": processes}) + "\n" + json.dumps({"processes": 3}) + "\n")
    found = run_measurement(run, state)
    assert found is not None and found.host_rss_bytes == 120


def test_a_sound_measurement_stays_one() -> None:
    assert measurement().is_sound()
    assert not replace(measurement(), step_s=float("nan")).is_sound()
