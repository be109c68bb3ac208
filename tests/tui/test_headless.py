"""The headless view on run folders written by hand: what is read, what is told, how the following ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import EXIT_TRAINING_FAILED
from trainwiz.core.run.attempts import Phase, write_phase
from trainwiz.core.run.folder import MEETING_TOKEN, RunFolder
from trainwiz.core.run.lost import identify, machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunExit, RunState, RunStatus, write_state
from trainwiz.tui.headless.ending import ending_of, ending_rows, exit_code
from trainwiz.tui.headless.reporters import Progress, Reporter
from trainwiz.tui.headless.run import EXIT_HUNG_UP, StopSignals, follow
from trainwiz.tui.text import GIB

from tests.core.run.checkpoint_files import write_checkpoint
from tests.core.supervise.conftest import Starter, assert_gone
from tests.each import each

BEGAN_S = time.time() - 100


@pytest.fixture
def folder(here: Path) -> RunFolder:
    path = here / "runs" / "one"
    path.mkdir(parents=True)
    return RunFolder(path)


def alive(folder: RunFolder, status: RunStatus = "running", **values: Any) -> Progress:
    """A state whose keeper is alive: this very process."""
    attempts = [Attempt(1, BEGAN_S - 500, ended_s=BEGAN_S - 1, status="failed"), Attempt(2, BEGAN_S)]
    known = {"supervisor": this_process(), "machine": machine_identity(), "heartbeat_s": time.time(), "max_steps": 100}
    write_state(folder, RunState(status=status, attempts=attempts, **known, **values))
    return Progress(folder)


def log(folder: RunFolder, *rows: dict[str, Any]) -> None:
    with folder.metrics_jsonl.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def row(step: int, loss: float = 3.0) -> dict[str, Any]:
    return {"time_s": 10.0 + 2.0 * step, "step": step, "loss": loss, "real_tokens_per_s": 1234.0}


def advise(folder: RunFolder, **values: Any) -> None:
    line = {"time_s": time.time(), "code": "data_wait", "severity": "warning", "text": "The GPU waits.", **values}
    with folder.file("advice.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def test_phases_before_the_first_step(folder: RunFolder) -> None:
    reader = alive(folder, "starting")
    assert reader.read().phase == "starting accelerate"
    folder.file(MEETING_TOKEN).write_text("x")
    assert reader.read().phase == "waiting for the other nodes"
    alive(folder, "starting", workers=[this_process()])
    assert reader.read().phase == "loading libraries, model and data"


def test_numbers_while_training_of_this_start_alone(folder: RunFolder) -> None:
    reader = alive(folder)
    log(folder, row(1), row(2), row(10, loss=2.5))
    system = {"gpus": [], "processes": [{"rss_bytes": GIB}, {"rss_bytes": GIB // 2}, {"rss_bytes": None}]}
    folder.system_jsonl.write_text(json.dumps(system) + "\n")
    progress = reader.read()
    assert (progress.phase, progress.step, progress.row["loss"]) == ("training", 10, 2.5)
    assert progress.left_s == pytest.approx(180.0)
    assert progress.memory_bytes == GIB * 3 // 2
    assert [kind for kind, _ in progress.news] == ["metrics"] * 3 and reader.read().news == []

    resumed = Progress(folder, resumed=True)
    assert resumed.read().step is None
    log(folder, row(11))
    assert [new["step"] for _, new in resumed.read().news] == [11]
    # The fullest GPU wins over processes.
    gpus = [{"memory_used_bytes": GIB}, {"memory_used_bytes": 3 * GIB}, {"memory_used_bytes": None}]
    folder.system_jsonl.write_text(json.dumps({"gpus": gpus, "processes": [{"rss_bytes": 9 * GIB}]}) + "\n")
    assert Progress(folder).read().memory_bytes == 3 * GIB
    # What others hold of it is not the run's.
    gpus = [{"memory_used_bytes": 15 * GIB, "processes": [{"pid": 7, "memory_used_bytes": GIB}, {"pid": 8}]}]
    folder.system_jsonl.write_text(json.dumps({"gpus": gpus, "processes": [{"pid": 7, "rss_bytes": GIB}]}) + "\n")
    assert Progress(folder).read().memory_bytes == GIB


@each(
    ("status", "phase", "detail", "since_s", "said"),
    [
        ("running", "tokenising", "12,000 of 80,000 rows", BEGAN_S, "tokenizing 12,000 of 80,000 rows"),
        ("running", "paused", "waiting for disk space", BEGAN_S, "paused: waiting for disk space"),
        ("stopping", "saving", "", BEGAN_S, "stopping: saving"),
        # What an earlier attempt did is over.
        ("running", "evaluating", "", BEGAN_S - 50, "first step"),
    ],
)
def test_a_silent_moment_is_told_in_the_words_of_the_training(
    tmp_path: Path, status: RunStatus, phase: Phase, detail: str, since_s: float, said: str
) -> None:
    folder = RunFolder(tmp_path)
    reader = alive(folder, status)
    write_phase(folder, phase, 3, detail, since_s=since_s)
    assert reader.read().doing == said


def test_advice_is_told_once_and_again_when_it_is_worse(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    reader = alive(folder)
    advise(folder, time_s=BEGAN_S - 50, code="old", text="Of an attempt that is over.")
    advise(folder, severity="note", code="small", text="Not worth a line.")
    advise(folder, text="The GPU waits \x1b[31m30 % of a step.", remedy="More workers.")
    progress = reader.read()
    Reporter("lines").progress(progress)
    assert capsys.readouterr().out.splitlines()[0] == "! The GPU waits 30 % of a step. More workers."
    Reporter("json").progress(progress)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "advice", "code": "data_wait", "severity": "warning"}.items() <= events[-1].items()
    advise(folder, text="The GPU waits 31 % of a step.")
    assert reader.read().news == []
    advise(folder, severity="error", text="The GPU waits 90 % of a step.")
    assert [advice["severity"] for _, advice in reader.read().news] == ["error"]


def test_plain_lines_and_events(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    reader, reporter = alive(folder), Reporter("lines")
    reporter.progress(reader.read())
    log(folder, row(1), row(2, loss=2.9), {"step": 2, "eval_loss": 2.75})
    reporter.progress(reader.read())
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "first step",
        "step 1/100   loss 3.00",
        "step 2/100   loss 2.90   1,234 tokens/s   3.3 min left",
        "step 2/100   evaluation loss 2.75",
    ]
    # A loss that is no number is shown, and is null in JSON.
    folder.metrics_jsonl.write_text('{"step": 1, "loss": NaN}\n')
    progress = Progress(folder).read()
    Reporter("lines").progress(progress)
    assert "loss nan" in capsys.readouterr().out
    Reporter("json").progress(progress)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["event"] == "status" and events[1] == {"event": "metrics", "step": 1, "loss": None}


def test_the_last_lines_say_how_it_ended_and_how_to_go_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    log(folder, row(1), row(9))

    def last(status: RunStatus, **values: Any) -> tuple[int, dict[str, str]]:
        state = RunState(status=status, **values)
        return exit_code(state), dict(ending_rows(folder, state))

    said = RunExit(130, "user_stop", "Stopped at step 7 by you.", "trainwiz runs resume runs/one")
    stopped = {"End": said.message, "Next": said.remedy}
    assert last("stopped", outcome={"step": 7}, exit=said) == (130, stopped)
    write_checkpoint(folder.path, 8)
    assert last("stopped", exit=said)[1] == {**stopped, "Saved": "runs/one/checkpoint-8"}
    assert ending_of(folder, RunState(status="stopped"))["step"] == 9, "killed, it has no outcome"
    folder.final_model.mkdir()
    folder.plan_json.write_text(json.dumps({"time": {"total_low_s": 40.0, "total_high_s": 70.0}}))
    outcome = {"outcome": "finished", "step": 100, "max_steps": 100, "first_loss": 3.42, "last_loss": 2.58}
    attempts = [Attempt(1, 20.0), Attempt(2, 100.0), Attempt(3, 140.0, because="the network was gone")]
    values = {"started_s": 20.0, "ended_s": 152.0, "attempts": attempts}
    code, rows = last("finished", outcome=outcome, exit=RunExit(0, None, "Finished."), **values)
    assert code == 0 and (rows["End"], rows["Time"]) == ("Finished.", "52 s (planned 40 to 70 s)")
    assert rows["Model"] == "runs/one/final_model"
    with monkeypatch.context() as patch:
        patch.chdir(folder.final_model)
        assert last("failed")[1]["Log"] == str(folder.train_log)
    assert last("failed")[1]["Log"] == "runs/one/train.log"

    write_state(folder, RunState(status="running", heartbeat_s=1.0))
    os.utime(folder.state_json, (1.0, 1.0))
    state = Progress(folder).read().state
    assert (state.status, exit_code(state)) == ("lost", 1)
    assert "disappeared without a final record" in ending_rows(folder, state)[0][1]


def test_a_removed_folder_ends_the_following(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_state(folder, RunState(status="prepared"))
    monkeypatch.setattr(Reporter, "progress", lambda *_: shutil.rmtree(folder.path))
    assert follow(folder, Reporter("lines"), StopSignals()) == EXIT_TRAINING_FAILED
    assert "is missing" in "".join(capsys.readouterr())


def test_the_keeper_of_a_run_that_has_ended_has_left_too(folder: RunFolder) -> None:
    """Its last word is written before it has ended: the next command may remove the folder, or go on in it."""
    with subprocess.Popen(["sleep", "1"]) as keeper:
        write_state(folder, RunState(status="finished", supervisor=identify(keeper.pid)))
        assert follow(folder, Reporter("lines"), StopSignals()) == 0
        assert identify(keeper.pid) is None


@each(
    ("sent", "save_s", "code", "said"),
    [
        ((signal.SIGINT, signal.SIGTERM), 300, 130, "Stopping immediately."),
        # The terminal is gone: nobody is told.
        ((signal.SIGHUP,), 0, EXIT_HUNG_UP, ""),
    ],
)
def test_a_signal_asks_for_a_stop_with_a_checkpoint_and_a_second_one_ends_at_once(
    start: Starter,
    sent: tuple[signal.Signals, ...],
    save_s: int,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    started = start(start.folder(str(code)), STEPS=100_000, SAVE_S=save_s)
    started.wait_for_steps(2)
    timers = [threading.Timer(0.5 + 1.5 * place, os.kill, (os.getpid(), one)) for place, one in enumerate(sent)]
    try:
        signals = StopSignals()
        with signals.heard():
            for timer in timers:
                timer.start()
            assert follow(started.run, Reporter("lines"), signals) == code
    finally:
        signal.signal(signal.SIGHUP, before)
    assert_gone(started.mark)
    assert started.state().status == "stopped"
    assert bool(list(started.run.path.glob("checkpoint-*/trainer_state.json"))) or save_s
    out = capsys.readouterr().out
    assert said in out and ("Stopping after this step, with a checkpoint." in out) == (signal.SIGINT in sent)


SHOW = """
from types import SimpleNamespace
from trainwiz.core.run.state import RunState
from trainwiz.tui.headless.reporters import Reporter
reporter = Reporter("bar")
reporter.progress(SimpleNamespace(
    state=RunState(status="running", max_steps=120), phase="training", phase_s=0.1, step=71, left_s=21.0,
    row={"loss": 2.71, "real_tokens_per_s": 18900.0}, memory_bytes=2**30, news=[], doing="",
))
reporter.note("[bold]a note[/bold]")
reporter.close()
"""


@pytest.mark.skipif(not Path("/dev/ptmx").exists(), reason="needs a pseudo-terminal")
def test_the_bar_is_one_live_line() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "120"}
        os.execv(sys.executable, [sys.executable, "-c", SHOW])
    text = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 4096):
            text += data
    os.close(terminal)
    drawn = text.decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, drawn
    assert "step 71/120   loss 2.71" in drawn and "21 s left" in drawn and "[bold]a note[/bold]" in drawn
    assert "18,900 tokens/s   1.0 GiB" in drawn
