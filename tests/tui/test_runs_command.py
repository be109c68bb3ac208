"""`trainwiz runs ...` as a user types it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.notes import add_note
from trainwiz.core.run.processid import machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunExit, read_state, write_state
from trainwiz.tui.commands.runs import run_list
from trainwiz.tui.commands.runs_compare import run_compare
from trainwiz.tui.commands.runs_remove import run_remove
from trainwiz.tui.commands.runs_show import run_show
from trainwiz.tui.commands.runs_stop import run_stop

from tests.core.launch.plans import small_plan
from tests.core.run.checkpoint_files import cut, write_checkpoint

HOSTILE = "\x1b[31m[bold]\x07"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A failed run whose message holds what a terminal would obey."""
    monkeypatch.chdir(tmp_path)
    run = prepare_run(small_plan(name="demo"))
    state = read_state(run)
    state.status, state.started_s, state.ended_s = "failed", 1000.0, 1060.0
    state.attempts = [Attempt(1, 1000.0, 1060.0, status="failed", set_aside=["checkpoint-9 is not complete."])]
    state.exit = RunExit(1, "cuda_oom", f"The GPU ran out of memory {HOSTILE}.", "do this", (f"line {HOSTILE}",))
    write_state(run, state)
    run.metrics_jsonl.write_text(json.dumps({"step": 7, "loss": 2.5}) + "\n")
    write_checkpoint(run.path, 5)
    cut(write_checkpoint(run.path, 6) / "optimizer.pt")
    return run


def test_list(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_run(small_plan(name="other"))
    assert run_list(as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "status", "step", "loss", "model", "started"]
    assert "-other" in lines[1]
    assert lines[2].split()[1:7] == ["✗", "failed", "7", "of", "10", "2.500"]
    assert run_list(as_json=True) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["status"], run["step"]) for run in runs] == [("prepared", None), ("failed", 7)]


def test_list_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_list(as_json=False) == 0
    assert "no runs" in capsys.readouterr().out


def test_show(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    add_note(folder.path, "raised the warmup", step=7)
    assert run_show("demo", as_json=False) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]" in out
    assert "checkpoint-5   complete" in out
    assert "checkpoint-6   broken: optimizer.pt is cut off" in out
    assert "checkpoint-9 is not complete." in out
    assert "step 7: raised the warmup" in out
    assert run_show("demo", as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["state"]["exit"]["cause"] == "cuda_oom"
    assert [note["text"] for note in document["notes"]] == ["raised the warmup"]
    assert [found["problem"] is None for found in document["checkpoints"]] == [True, False]


def test_an_unknown_run_names_the_nearest(folder: RunFolder) -> None:
    with pytest.raises(UsageError, match="Did you mean"):
        run_show(folder.path.name.replace("demo", "demi"), as_json=False)


def test_stop_of_what_does_not_run(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_stop("demo", now=False) == 0
    assert "is not running: it is failed" in capsys.readouterr().out


def test_remove_asks(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="add --yes"):
        run_remove("demo", yes=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or "n")
    assert run_remove("demo", yes=False) == 0
    assert "2 checkpoints" in questions[0]
    assert folder.is_run()
    # A part of a name is enough to be asked about, not to be removed without a question.
    with pytest.raises(UsageError, match="Did you mean"):
        run_remove("demo", yes=True)
    assert run_remove(folder.path.name, yes=True) == 0
    assert not folder.path.exists()
    assert "Removed" in capsys.readouterr().out


def test_an_active_run_is_not_removed(folder: RunFolder) -> None:
    state = read_state(folder)
    state.status, state.supervisor, state.machine = "running", this_process(), machine_identity()
    state.heartbeat_s = time.time()
    write_state(folder, state)
    with pytest.raises(UsageError, match="stop it first"):
        run_remove(folder.path.name, yes=True)
    assert folder.is_run()


def test_compare(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    other = prepare_run(small_plan(name="other", training__learning_rate=1e-3))
    assert run_compare([folder.path.name, other.path.name], as_json=False) == 0
    out = capsys.readouterr().out
    assert "training.learning_rate" in out
    assert "training.seed" not in out
    assert run_compare([folder.path.name, other.path.name], as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["training.learning_rate"] == [0.0004, 0.001]
