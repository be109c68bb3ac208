"""`trainwiz runs ...` as a user types it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.attempts import Recovery, write_phase, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import record_run
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunExit, RunState, read_state, write_state
from trainwiz.tui import output
from trainwiz.tui.commands.runs import run_compare, run_list, run_remove, run_show, run_stop
from trainwiz.tui.text import cells

from tests.core.launch.plans import small_plan
from tests.core.run.checkpoint_files import cut, write_checkpoint
from tests.core.supervise.conftest import Started, Starter, assert_gone

pytestmark = pytest.mark.usefixtures("here")
LONG_STEP_S = 40 * 60
HOSTILE = "\x1b[31m[bold]\x07"


@pytest.fixture
def folder() -> RunFolder:
    """A failed run whose message holds what a terminal would obey."""
    run = prepare_run(small_plan(name="demo"))
    state = read_state(run)
    state.status, state.started_s, state.ended_s = "failed", 1000.0, 1060.0
    state.attempts = [Attempt(1, 1000.0, 1060.0, status="failed", set_aside=["checkpoint-9 is incomplete."])]
    state.exit = RunExit(1, "cuda_oom", f"The GPU ran out of memory {HOSTILE}.", "do this", (f"line {HOSTILE}",))
    write_state(run, state)
    run.metrics_jsonl.write_text(json.dumps({"step": 7, "loss": 2.5}) + "\n")
    write_checkpoint(run.path, 5)
    cut(write_checkpoint(run.path, 6) / "optimizer.pt")
    return run


def test_list_and_compare(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    other = prepare_run(small_plan(name="other", training__learning_rate=1e-3))
    run_list(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "status", "step", "loss", "what", "started"]
    assert "-other" in lines[1]
    assert lines[2].split()[1:7] == ["✗", "failed", "7", "of", "10", "2.5"]
    run_list(as_json=True)
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["status"], run["step"]) for run in runs] == [("prepared", None), ("failed", 7)]
    run_compare([folder.path.name, other.path.name], as_json=False)
    out = capsys.readouterr().out
    assert "training.learning_rate" in out and "training.seed" not in out
    assert "0.0004" in out and " - " not in next(line for line in out.splitlines() if "learning_rate" in line)
    run_compare([folder.path.name, other.path.name], as_json=True)
    assert json.loads(capsys.readouterr().out)["settings"]["training.learning_rate"] == [0.0004, 0.001]


def test_list_fits_its_terminal(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.path.rename(folder.path.with_name("模型-" + "a-long-name-" * 3))
    for width, headings in ((100, 6), (80, 5), (64, 3)):
        monkeypatch.setattr(output, "width_of", lambda stream, width=width: width)
        run_list(as_json=False)
        first, second = capsys.readouterr().out.splitlines()
        assert len(first.split()) == headings
        assert cells(first) <= width and cells(second) <= width
        assert "failed" in second and "7 of 10" in second and second.startswith("模型-a-lo")
    monkeypatch.chdir("/")
    run_list(as_json=False)
    assert "No runs in runs/ yet" in capsys.readouterr().out


def test_show(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_show("demo", as_json=False)
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "[bold]" in out
    assert "checkpoint-5   complete" in out
    assert "checkpoint-6   broken: optimizer.pt is incomplete" in out
    assert "checkpoint-9 is incomplete." in out
    run_show("demo", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["state"]["exit"]["cause"] == "cuda_oom"
    assert [found["problem"] is None for found in document["checkpoints"]] == [True, False]
    with pytest.raises(UsageError, match="Did you mean"):
        run_show(folder.path.name.replace("demo", "demi"), as_json=False)
    assert run_stop(["demo"], now=False) == 0
    assert "is not running (failed)" in capsys.readouterr().out


@pytest.fixture
def recovered(folder: RunFolder) -> RunFolder:
    """A run that goes on by itself after it ran out of memory, and is tokenising now."""
    state = read_state(folder)
    changes = {"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 6}
    failed = {"code": 1, "cause": "cuda_oom", "message": "The GPU ran out of memory."}
    state.attempts = [
        Attempt(1, 1000.0, 1060.0, status="failed", exit=failed),
        Attempt(2, 1061.0, 1070.0, status="lost"),
        Attempt(3, time.time() - 30, resume="checkpoint-5", because="cuda_oom", changes=changes),
    ]
    state.status, state.exit, state.ended_s = "running", None, None
    state.supervisor, state.machine, state.heartbeat_s = this_process(), machine_identity(), time.time()
    write_state(folder, state)
    write_phase(folder, "tokenising", 5, "12 of 80 rows")
    (folder.path / "broken-checkpoint-9").mkdir()
    (folder.path / "later-checkpoint-7-2").mkdir()
    lines = [
        {"code": "stalled", "severity": "warning", "text": "No step for long.", "remedy": "look", "where": "train"},
        {"code": "starved", "severity": "note", "text": "It waits for data.", "where": "data"},
        {"code": "starved", "severity": "cleared", "text": "", "where": "data"},
    ]
    (folder.path / "advice.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_recoveries(folder, [Recovery(3, "cuda_oom", 5, 1070.0, changes)])
    return folder


def test_show_tells_what_recovery_did(recovered: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_show("demo", as_json=False)
    out = capsys.readouterr().out
    attempts = [line for line in out.splitlines() if line.startswith("Attempt")]
    assert [line.rpartition(": ")[2] for line in attempts] == ["failed", "lost", "running"]
    assert "9 s: lost" in attempts[1]
    assert "checkpoint-5" in attempts[2]
    for words in (
        "tokenizing 12 of 80 rows, for",
        "The GPU ran out of memory.",
        "started automatically by trainwiz: GPU memory ran out",
        "1 × 6 instead of 2 × 3",
        "No step for long.",
    ):
        assert words in out
    assert "It waits for data." not in out
    run_show("demo", as_json=True)
    document = json.loads(capsys.readouterr().out)
    last = document["state"]["attempts"][-1]
    assert (last["because"], last["changes"]["batch.micro_batch_size"]) == ("cuda_oom", 1)
    assert [advice["code"] for advice in document["advice"]] == ["stalled"]
    assert [(found["name"], found["why"]) for found in document["set_aside"]] == [
        ("later-checkpoint-7-2", "later"),
        ("broken-checkpoint-9", "broken"),
    ]
    # It ends, and says why it was not started again.
    state = read_state(recovered)
    state.status, state.ended_s = "failed", time.time()
    state.attempts[-1].not_retried = "It was started again 3 times without a new checkpoint."
    state.exit = RunExit(1, "cuda_oom", "The GPU ran out of memory again.", "do this")
    write_state(recovered, state)
    run_show("demo", as_json=False)
    out = capsys.readouterr().out
    assert out.count("3 times without a new checkpoint") == 1
    # What a training did last is no news of a run that has ended.
    assert "tokenising" not in out


def test_list_tells_of_runs_elsewhere(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run_list(as_json=False)
    assert "--all lists other folders too" in capsys.readouterr().out
    run_list(as_json=False, everywhere=True)
    assert capsys.readouterr().out.splitlines()[1].startswith(str(tmp_path / folder.path))
    run_show("demo", as_json=False)


def test_remove_asks(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="add --yes"):
        run_remove("demo", yes=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or "n")
    run_remove("demo", yes=False)
    assert "2 checkpoints" in questions[0]
    # A part of a name is enough to be asked about, not to be removed without a question.
    with pytest.raises(UsageError, match="Did you mean"):
        run_remove("demo", yes=True)
    assert folder.is_run()
    run_remove(folder.path.name, yes=True)
    assert not folder.path.exists()
    assert "Removed" in capsys.readouterr().out


def started(start: Starter, name: str, **variables: object) -> Started:
    one = start(start.folder(name), **{"SAID_STEP_S": 0.1, "STEPS": 100_000, **variables})
    one.wait(lambda state: state.window is not None)
    return one


def test_several_are_stopped_and_a_long_step_is_told_before_the_wait(
    start: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = started(start, "short"), started(start, "long", SAID_STEP_S=LONG_STEP_S, WORLD_SIZE=2)
    with pytest.raises(UsageError, match="Run 'shorts' not found"):
        run_stop(["long", "shorts"], now=True)
    assert long.state().status in ("starting", "running")
    assert run_stop(["short", "long", "short"], now=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("long: Finishing the step and saving may take 40 min.")
    assert lines[2].strip() == "trainwiz runs stop long --now"
    assert sum("All processes of the run have ended." in line for line in lines) == 2
    for one in (short, long):
        assert one.state().status == "stopped"
        assert_gone(one.mark)


def test_what_cannot_be_stopped_holds_up_no_other_and_a_second_stop_waits_with_the_first(
    start: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    here = started(start, "here", SAVE_S=3)
    away = RunFolder(start.root / "runs" / "away")
    away.path.mkdir()
    away.run_yaml.write_text("name: away\n")
    write_state(away, RunState(status="running", machine="another", host="gpu-box", heartbeat_s=9e9, supervisor=None))
    document = json.loads(away.state_json.read_text())
    away.state_json.write_text(json.dumps({**document, "supervisor": {"pid": 1, "create_time": 1.0}}))
    os.kill(here.supervisor(), signal.SIGTERM)
    here.wait(lambda state: state.status == "stopping")
    with pytest.raises(CannotRunError, match="away is running on gpu-box; stop it there"):
        run_stop(["away", "here"], now=False)
    out = capsys.readouterr().out
    assert "Stopped at step" in out
    assert here.state().status == "stopped" and here.state().outcome is not None
    assert read_state(away).status == "running"
