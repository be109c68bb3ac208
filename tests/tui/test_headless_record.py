"""What the headless view takes from the run record: the phase while no steps come, and the watchers' advice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.attempts import Phase, write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunState, RunStatus, write_state
from trainwiz.tui.headless.reporters import JsonReporter, PlainReporter, ProgressReader, waiting_for

BEGAN_S = time.time() - 100


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def alive(folder: RunFolder, status: RunStatus = "running") -> None:
    """This process stands in for the keeper."""
    attempts = [Attempt(1, BEGAN_S - 500, ended_s=BEGAN_S - 1, status="failed"), Attempt(2, BEGAN_S)]
    state = RunState(
        status=status,
        machine=machine_identity(),
        supervisor=this_process(),
        heartbeat_s=time.time(),
        attempts=attempts,
    )
    write_state(folder, state)


def advise(folder: RunFolder, **values: Any) -> None:
    line = {"time_s": time.time(), "code": "data_wait", "severity": "warning", "text": "The GPU waits.", **values}
    with folder.file("advice.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    ("phase", "detail", "said"),
    [
        ("tokenising", "12,000 of 80,000 rows", "tokenising 12,000 of 80,000 rows"),
        ("evaluating", "", "evaluating"),
        ("paused", "waiting for room on the disk", "paused: waiting for room on the disk"),
    ],
)
def test_a_silent_moment_is_told_in_the_words_of_the_training(
    folder: RunFolder, phase: Phase, detail: str, said: str
) -> None:
    alive(folder)
    write_phase(folder, phase, 3, detail)
    assert waiting_for(ProgressReader(folder).read()) == said


def test_while_it_stops_both_are_told(folder: RunFolder) -> None:
    alive(folder, "stopping")
    write_phase(folder, "saving", 3)
    assert waiting_for(ProgressReader(folder).read()) == "stopping: saving"


def test_what_an_earlier_attempt_did_is_over(folder: RunFolder) -> None:
    alive(folder)
    write_phase(folder, "evaluating", 3, since_s=BEGAN_S - 50)
    assert ProgressReader(folder).read().doing == ""


def test_advice_is_told_once_and_again_when_it_is_worse(folder: RunFolder) -> None:
    alive(folder)
    advise(folder, time_s=BEGAN_S - 50, code="old", text="Of an attempt that is over.")
    advise(folder, severity="note", code="small", text="Not worth a line.")
    advise(folder, text="The GPU waits 30 % of a step.")
    reader = ProgressReader(folder)
    assert [advice.text for advice in reader.read().new_advice] == ["The GPU waits 30 % of a step."]
    advise(folder, text="The GPU waits 31 % of a step.")
    assert reader.read().new_advice == ()
    advise(folder, severity="error", text="The GPU waits 90 % of a step.")
    assert [advice.level for advice in reader.read().new_advice] == ["error"]


def test_advice_is_a_line_and_an_event(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    alive(folder)
    advise(folder, text="The disk is \x1b[31mfull.", remedy="Free space.")
    progress = ProgressReader(folder).read()
    PlainReporter().progress(progress)
    assert "! The disk is full. Free space." in capsys.readouterr().out
    JsonReporter().progress(progress)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "advice", "code": "data_wait", "severity": "warning"}.items() <= events[-1].items()
