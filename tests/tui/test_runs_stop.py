"""`trainwiz runs stop`: several runs, what is said before a long wait, and what cannot be stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, read_state, write_state
from trainwiz.tui.commands.runs_show import run_show, run_stop

from tests.core.supervise.conftest import Started, Starter
from tests.fakes.marked import marked_pids, wait_until_gone

LONG_STEP_S = 40 * 60


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    monkeypatch.chdir(tmp_path)
    starter = Starter(tmp_path)
    yield starter
    for started in starter.started:
        for pid in marked_pids(started.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def started(start: Starter, name: str, **variables: object) -> Started:
    one = start(start.folder(name), **{"SAID_STEP_S": 0.1, **variables})
    one.wait(lambda state: state.window is not None)
    return one


def test_several_are_stopped_and_a_long_step_is_told_before_the_wait(
    start: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = started(start, "short"), started(start, "long", SAID_STEP_S=LONG_STEP_S, WORLD_SIZE=2)
    assert run_show("long", as_json=False) == 0
    shown = capsys.readouterr().out
    assert "To stop it  The step under way may take 40 min; it is finished before the save." in shown
    assert run_stop("short", "long", "short", now=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("long: The step under way may take 40 min; it is finished before the save. ")
    assert "after 51 min is ended by force" in lines[0]
    assert lines[2].strip() == "trainwiz runs stop long --now"
    assert sum("No process of the run is left." in line for line in lines) == 2
    for one in (short, long):
        assert one.state().status == "stopped"
        assert wait_until_gone(one.mark, 5.0) == []


def test_what_cannot_be_stopped_holds_up_no_other(start: Starter, capsys: pytest.CaptureFixture[str]) -> None:
    here = started(start, "here")
    away = RunFolder(start.root / "runs" / "away")
    away.path.mkdir()
    away.run_yaml.write_text("name: away\n")
    write_state(away, RunState(status="running", machine="another", host="gpu-box", heartbeat_s=9e9, supervisor=None))
    document = json.loads(away.state_json.read_text())
    away.state_json.write_text(json.dumps({**document, "supervisor": {"pid": 1, "create_time": 1.0}}))
    with pytest.raises(CannotRunError, match="away runs on gpu-box; stop it there"):
        run_stop("away", "here", now=True)
    assert here.state().status == "stopped"
    assert read_state(away).status == "running"


def test_a_name_that_is_wrong_stops_nothing(start: Starter) -> None:
    one = started(start, "one")
    with pytest.raises(UsageError, match="There is no run 'ones'"):
        run_stop("one", "ones", now=True)
    assert one.state().status in ("starting", "running")


def test_a_second_stop_says_since_when(start: Starter, capsys: pytest.CaptureFixture[str]) -> None:
    one = started(start, "one", SAVE_S=3)
    os.kill(one.supervisor(), signal.SIGTERM)
    one.wait(lambda state: state.status == "stopping")
    assert run_stop("one", now=False) == 0
    out = capsys.readouterr().out
    assert out.startswith("one: It was asked to stop ")
    assert "Stopped at step" in out and one.state().outcome is not None
