"""The parts of the headless view, on run folders written by hand."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.folder import MEETING_TOKEN, RunFolder
from trainwiz.core.run.lost import identify, machine_identity
from trainwiz.core.run.state import RunState, write_state
from trainwiz.tui.headless.ending import ending_lines, ending_of
from trainwiz.tui.headless.reporters import JsonReporter, PlainReporter, ProgressReader, clock
from trainwiz.tui.text import GIB

from tests.core.run.checkpoint_files import write_checkpoint
from tests.each import each


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "one"
    path.mkdir(parents=True)
    return RunFolder(path)


def set_state(folder: RunFolder, **values: Any) -> None:
    """A state whose keeper is alive: this very process."""
    here = identify(os.getpid())
    machine = machine_identity()
    write_state(folder, RunState(supervisor=here, machine=machine, heartbeat_s=time.time(), max_steps=100, **values))


def log(folder: RunFolder, *rows: dict[str, Any]) -> None:
    with folder.metrics_jsonl.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def row(step: int, loss: float = 3.0, **more: Any) -> dict[str, Any]:
    return {"time_s": 10.0 + 2.0 * step, "step": step, "loss": loss, "real_tokens_per_s": 1234.0, **more}


def test_phases_before_the_first_step(folder: RunFolder) -> None:
    set_state(folder, status="starting")
    reader = ProgressReader(folder)
    assert reader.read().phase == "starting accelerate"
    folder.file(MEETING_TOKEN).write_text("x")
    assert reader.read().phase == "waiting for the other machines"
    folder.file(MEETING_TOKEN).unlink()
    assert reader.read().phase == "starting accelerate"
    set_state(folder, status="starting", workers=[identify(os.getpid())])
    assert reader.read().phase == "loading libraries, model and data"
    set_state(folder, status="running")
    first = reader.read()
    assert (first.phase, first.step, first.left_s) == ("first step", None, None)


def test_numbers_while_training(folder: RunFolder) -> None:
    set_state(folder, status="running")
    reader = ProgressReader(folder)
    log(folder, row(1), row(2), row(10, loss=2.5))
    system = {"gpus": [], "processes": [{"rss_bytes": GIB}, {"rss_bytes": GIB // 2}, {"rss_bytes": None}]}
    folder.system_jsonl.write_text(json.dumps(system) + "\n")
    progress = reader.read()
    assert (progress.phase, progress.step, progress.max_steps) == ("training", 10, 100)
    assert (progress.loss, progress.tokens_per_s) == (2.5, 1234.0)
    assert progress.left_s == pytest.approx(180.0)
    assert progress.memory_bytes == GIB * 3 // 2
    assert len(progress.new_rows) == 3
    assert reader.read().new_rows == ()


def test_a_resumed_run_shows_only_its_own_rows(folder: RunFolder) -> None:
    log(folder, row(1), row(2))
    set_state(folder, status="running")
    reader = ProgressReader(folder, resumed=True)
    assert reader.read().step is None
    log(folder, row(3))
    assert [new["step"] for new in reader.read().new_rows] == [3]


def test_gpu_memory_wins_over_processes(folder: RunFolder) -> None:
    set_state(folder, status="running")
    gpus = [{"memory_used_bytes": GIB}, {"memory_used_bytes": 3 * GIB}, {"memory_used_bytes": None}]
    folder.system_jsonl.write_text(json.dumps({"gpus": gpus, "processes": [{"rss_bytes": 9 * GIB}]}) + "\n")
    assert ProgressReader(folder).read().memory_bytes == 3 * GIB


def test_a_lost_run_ends_with_1(folder: RunFolder) -> None:
    write_state(folder, RunState(status="running", heartbeat_s=1.0))
    os.utime(folder.state_json, (1.0, 1.0))
    state = ProgressReader(folder).read().state
    ending = ending_of(folder, state)
    assert (ending.status, ending.exit_code) == ("lost", 1)
    assert "gone without a last word" in ending_lines(ending)[0]


def test_the_last_line_of_a_finished_run(folder: RunFolder) -> None:
    folder.final_model.mkdir()
    folder.plan_json.write_text(json.dumps({"time": {"total_low_s": 40.0, "total_high_s": 70.0}}))
    outcome = {"outcome": "finished", "step": 100, "max_steps": 100, "first_loss": 3.42, "last_loss": 2.58}
    state = RunState(status="finished", outcome=outcome, started_s=100.0, ended_s=152.0)
    ending = ending_of(folder, state)
    assert ending.exit_code == 0
    assert ending_lines(ending) == [
        "Finished  loss 3.42 → 2.58 in 52 s (planned 40 to 70 s). Model: runs/one/final_model"
    ]


def test_a_stopped_run_says_how_to_go_on_only_with_a_checkpoint(folder: RunFolder) -> None:
    ending = ending_of(folder, RunState(status="stopped", outcome={"step": 7}))
    assert ending.exit_code == 130
    assert ending_lines(ending) == ["Stopped   at step 7, no checkpoint yet."]


def test_a_killed_run_ends_at_its_last_logged_step(folder: RunFolder) -> None:
    log(folder, row(1), row(9))
    assert ending_lines(ending_of(folder, RunState(status="stopped"))) == ["Stopped   at step 9, no checkpoint yet."]
    write_checkpoint(folder.path, 8)
    said = "Stopped   at step 9; the newest checkpoint is checkpoint-8. Go on: trainwiz --resume --output-dir runs/one"
    assert ending_lines(ending_of(folder, RunState(status="stopped"))) == [said]


def test_plain_lines_and_their_escape_free_text(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    set_state(folder, status="running")
    reader, reporter = ProgressReader(folder), PlainReporter()
    reporter.progress(reader.read())
    log(folder, row(1), row(2, loss=2.9), {"step": 2, "eval_loss": 2.75})
    reporter.progress(reader.read())
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "first step",
        "step 1/100   loss 3.00",
        "step 2/100   loss 2.90",
        "step 2/100   evaluation loss 2.75",
    ]


def test_a_nan_loss_is_shown_and_is_null_in_json(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    set_state(folder, status="running")
    folder.metrics_jsonl.write_text('{"step": 1, "loss": NaN}\n')
    progress = ProgressReader(folder).read()
    PlainReporter().progress(progress)
    assert "loss nan" in capsys.readouterr().out
    JsonReporter().progress(progress)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[1] == {"event": "metrics", "step": 1, "loss": None}
    assert events[0]["event"] == "status"


@each(
    ("seconds", "text"),
    [(21.4, "0:21"), (600, "10:00"), (4000, "1:06:40"), (86400, "24:00:00"), (200000, "2 days 7 h")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
