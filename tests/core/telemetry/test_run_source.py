"""RunSource on folders in the real format: live, ended, broken, growing, rewound."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.telemetry.run_source import RunSource

from tests.core.telemetry.written_run import GIB, NOW_S, metric_rows, system_row, write_json, write_lines, write_run


def source_of(path: Path) -> RunSource:
    return RunSource(RunFolder(path), clock=lambda: NOW_S)


def test_the_json_has_the_documented_keys_and_the_figures_of_the_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", nan_at=(812,))
    document = source_of(folder).read_all().to_json()
    assert {"source", "path", "status", "step", "max_steps", "epoch", "eta_s"} <= set(document)
    assert {"metrics", "gpus", "host", "processes", "advice"} <= set(document)
    assert document["source"] == "run"
    assert document["status"] == "running"
    assert document["step"] == 1600
    assert document["max_steps"] == 500_000
    losses = [row["loss"] for row in metric_rows(400, 4, 742.0, (812,)) if "loss" in row]
    finite = [value for value in losses if math.isfinite(value)]
    assert document["metrics"]["loss"] == {
        "last": losses[-1],
        "count": 400,
        "min": min(finite),
        "max": max(finite),
        "non_finite": 1,
    }
    assert document["metrics"]["eval_loss"]["count"] == 5
    assert document["gpus"] == system_row(119, 1)["gpus"]
    assert len(document["processes"]) == 14
    json.dumps(document, allow_nan=False)


def test_it_grows_with_the_files_and_reads_each_line_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1)
    source = source_of(folder)
    assert source.poll().metrics["loss"].count == 10
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "loss": 2.5}\n{"step": 12, "lo')
    assert source.poll().metrics["loss"].count == 11
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('ss": 2.25}\n')
    snapshot = source.poll(curves=("loss",))
    assert (snapshot.step, snapshot.metrics["loss"].last) == (12, 2.25)
    assert len(snapshot.curve("loss")) == 12


def test_a_snapshot_does_not_change_when_the_run_goes_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1)
    source = source_of(folder)
    before = source.poll(curves=("loss",))
    points = list(before.curve("loss").values)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "loss": 99.0}\n')
    source.poll(curves=("loss",))
    assert list(before.curve("loss").values) == points
    assert before.metrics["loss"].count == 10


def test_metrics_that_are_written_anew_start_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1)
    source = source_of(folder)
    source.poll()
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 5.0}\n')
    snapshot = source.poll()
    assert (snapshot.step, snapshot.metrics["loss"].count) == (1, 1)


def test_an_empty_run_folder(tmp_path: Path) -> None:
    snapshot = source_of(tmp_path).poll()
    document = snapshot.to_json()
    assert (document["status"], document["step"], document["metrics"]) == ("prepared", None, {})
    assert document["gpus"] == document["processes"] == []


def test_broken_files_are_sentences_and_never_exceptions(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=3)
    (folder / "metrics.jsonl").write_bytes(b'\xff\xfe\x00garbage\n{"step": 1, "loss": 2}\n[1]\n')
    (folder / "plan.json").write_text("{ half")
    (folder / "system.jsonl").write_text('{"gpus": 3, "host": [], "processes": {"a": 1}}\n{"gpus": [null, {}]}\n')
    snapshot = source_of(folder).poll()
    assert snapshot.metrics["loss"].count == 1
    assert any("metrics.jsonl" in problem and "2 lines" in problem for problem in snapshot.problems)
    assert len(snapshot.gpus) == 1
    assert snapshot.planned.memory_bytes is None


def test_a_silent_run_on_another_machine_is_lost(tmp_path: Path) -> None:
    snapshot = source_of(write_run(tmp_path / "run", status="running")).poll()
    assert snapshot.status == "running"
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    write_json(tmp_path / "run" / "state.json", {**state, "heartbeat_s": NOW_S - 600})
    snapshot = source_of(tmp_path / "run").poll()
    assert snapshot.status == "lost"
    assert snapshot.ending is not None and "runs resume" in (snapshot.ending.remedy or "")


def test_a_failure_speaks_with_the_words_of_the_supervisor(tmp_path: Path) -> None:
    exit_ = {"code": 1, "cause": "cuda_oom", "message": "The GPU ran out of memory.", "remedy": "Lower the batch."}
    snapshot = source_of(write_run(tmp_path / "run", status="failed", exit_=exit_)).poll()
    assert snapshot.ending is not None
    assert (snapshot.ending.text, snapshot.ending.remedy) == ("The GPU ran out of memory.", "Lower the batch.")
    assert snapshot.to_json()["exit"]["cause"] == "cuda_oom"
    assert snapshot.eta_s is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"throttled": True}, "heat"),
        ({"nan_at": (812,)}, "nan_loss"),
        ({}, "memory_as_planned"),
    ],
)
def test_advice(tmp_path: Path, change: dict, code: str) -> None:
    snapshot = source_of(write_run(tmp_path / "run", **change)).poll()
    assert code in {advice.code for advice in snapshot.advice}


def test_memory_above_the_plan_and_waiting_for_data_are_warnings(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=20)
    rows = [system_row(index, 1) for index in range(5)]
    rows[2]["gpus"][0]["memory_used_bytes"] = 7 * GIB
    write_lines(folder / "system.jsonl", rows)
    metrics = metric_rows(20, 4, 10.0)
    for row in metrics:
        row["data_wait_s"] = 4.0
    write_lines(folder / "metrics.jsonl", metrics)
    codes = {advice.code: advice.level for advice in source_of(folder).poll().advice}
    assert codes["memory_above_plan"] == "warning"
    assert codes["data_wait"] == "warning"


def test_what_others_hold_on_another_card_is_not_the_memory_of_this_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=2)
    row = system_row(0, 2)
    row["gpus"][0]["processes"] = [{"pid": 200, "memory_used_bytes": 5 * GIB}]
    row["gpus"][1] |= {"memory_used_bytes": 7 * GIB, "processes": [{"pid": 999, "memory_used_bytes": 7 * GIB}]}
    write_lines(folder / "system.jsonl", [row])
    assert "memory_above_plan" not in {advice.code for advice in source_of(folder).poll().advice}


def test_one_lost_gpu_does_not_blank_the_others(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=3)
    row = system_row(0, 3)
    row["gpus"][1] = {"index": 1, "uuid": "GPU-1", "utilization_percent": None, "memory_used_bytes": None}
    row["unavailable"] = {"gpus.1": "GPU is lost"}
    write_lines(folder / "system.jsonl", [row])
    gpus = source_of(folder).poll().gpus
    assert [gpu.problem for gpu in gpus] == [None, "GPU is lost", None]
    assert gpus[2].memory_used_bytes == row["gpus"][2]["memory_used_bytes"]


def test_a_shrinking_disk_says_how_long_it_lasts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    rows = [system_row(index, 1, count=240) for index in range(240)]
    for index, row in enumerate(rows):
        row["host"]["disk_free_bytes"] = 100 * GIB - index * GIB // 100
    write_lines(folder / "system.jsonl", rows)
    lasts = source_of(folder).poll().host.disk_lasts_s
    assert lasts == pytest.approx((100 - 2.39) * 100, rel=0.01)


def test_memory_is_not_called_as_planned_before_a_step(tmp_path: Path) -> None:
    """The plan speaks of a training step: what loading takes is no praise of it, too much of it is."""
    folder = write_run(tmp_path / "run")
    write_lines(folder / "metrics.jsonl", [])
    assert not [advice.code for advice in source_of(folder).poll().advice if advice.code.startswith("memory_")]
    row = system_row(0, 1)
    row["gpus"][0]["memory_used_bytes"] = 8 * GIB
    write_lines(folder / "system.jsonl", [row])
    assert "memory_above_plan" in {advice.code for advice in source_of(folder).poll().advice}


def test_the_plan_of_several_processes_on_a_cpu_is_compared_with_all_of_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=0)
    row = system_row(0, 0)
    row["processes"].append({"pid": 201, "role": "trainer", "rss_bytes": GIB // 2, "cpu_percent": 0.0})
    write_lines(folder / "system.jsonl", [row])
    assert source_of(folder).poll().peak_memory_bytes == GIB + GIB // 2


def test_a_folder_that_goes_away_under_its_viewer_is_told_and_found_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    source = source_of(folder)
    assert source.read_all().status == "running"
    folder.rename(tmp_path / "moved")
    snapshot = source.poll()
    assert snapshot.status == "lost"
    assert snapshot.ending is not None and "is gone: it was removed or moved" in snapshot.ending.text
    assert (snapshot.eta_s, snapshot.step, snapshot.actions) == (None, 1600, frozenset())
    (tmp_path / "moved").rename(folder)
    snapshot = source.poll()
    assert (snapshot.status, snapshot.step, snapshot.ending) == ("running", 1600, None)


def test_a_keeper_that_lives_and_does_not_write_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    document = json.loads((folder / "state.json").read_text())
    document.update(machine=machine_identity(), supervisor=this_process().to_json(), heartbeat_s=NOW_S - 300)
    write_json(folder / "state.json", document)
    snapshot = source_of(folder).read_all()
    assert snapshot.status == "running"
    assert [item.text for item in snapshot.advice if item.code == "keeper_silent"] == [
        "The supervisor has written nothing for 5 min: what is shown of status and machine is from then."
    ]
    document["heartbeat_s"] = NOW_S - 30
    write_json(folder / "state.json", document)
    assert not [item for item in source_of(folder).read_all().advice if item.code == "keeper_silent"]


@pytest.mark.parametrize("text", ["", "[]", '{"status": "flying"}', '{"status": "runni'])
def test_of_a_state_that_cannot_be_read_nothing_is_claimed(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", status="finished")
    (folder / "state.json").write_text(text)
    snapshot = source_of(folder).read_all()
    assert snapshot.status == "lost" and snapshot.ending is not None
    assert snapshot.ending.text.startswith(f"{folder / 'state.json'} is ")
    assert snapshot.ending.text.endswith("How the run ended is not known.")


def test_a_run_that_stands_still_names_no_finish(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=50, step_s=1.0, max_steps=1_000)
    assert RunSource(RunFolder(folder), clock=lambda: NOW_S).read_all().eta_s is not None
    later_s = NOW_S + 3_600
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, "heartbeat_s": later_s})
    snapshot = RunSource(RunFolder(folder), clock=lambda: later_s).read_all()
    assert snapshot.status == "running" and "stalled" in {advice.code for advice in snapshot.advice}
    assert snapshot.eta_s is None


def test_a_long_file_is_shown_from_its_end_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.run_source.METRICS_WINDOW_BYTES", 4096)
    monkeypatch.setattr("trainwiz.core.telemetry.run_source.POLL_S", 0.0)
    steps = 9_000
    folder = RunFolder(write_run(tmp_path / "run", steps=steps, log_every=1))
    source = RunSource(folder, clock=lambda: NOW_S)
    first = source.poll(["loss"])
    assert (first.step, first.behind) == (steps, True)
    assert first.metrics["loss"].count < 100
    assert 0 < first.read_share < 0.7
    shares = [first.read_share]
    while (last := source.poll(["loss"])).behind:
        shares.append(last.read_share)
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert (last.step, last.metrics["loss"].count, last.read_share) == (steps, steps, 1.0)


def test_one_look_at_a_long_file_ends_in_time_and_says_of_how_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.run_source.POLL_S", 0.0)
    monkeypatch.setattr("trainwiz.core.telemetry.target.READ_ALL_S", 0.0)
    snapshot = RunSource(RunFolder(write_run(tmp_path / "run", steps=9_000)), clock=lambda: NOW_S).read_all()
    assert "% of them are read so far" in snapshot.problems[-1]
    assert snapshot.to_json()["behind"] is True
    assert 0 < snapshot.to_json()["read_share"] < 1
