"""The keeper above the real training and the real accelerate: a stop keeps the work, a kill leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.checkpoints import list_checkpoints, newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import recorded_runs
from trainwiz.core.run.state import RunState, read_state

from tests.core.launch.plans import small_plan
from tests.core.supervise.conftest import Starter, assert_gone
from tests.fakes.marked import marked_pids
from tests.site import FAULTS_VARIABLE

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
PATIENCE_S = 900.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    yield RunFolder(tmp_path / "one")
    for pid in marked_pids(read_state(RunFolder(tmp_path / "one")).mark or "none"):
        os.kill(pid, signal.SIGKILL)


def wait(run: RunFolder, good: Callable[[RunState], bool]) -> RunState:
    deadline = time.monotonic() + PATIENCE_S
    while not good(state := read_state(run)):
        log = run.train_log.read_text(errors="replace")[-3000:] if state.has_ended else ""
        assert not state.has_ended and time.monotonic() < deadline, f"{state}\n{log}"
        time.sleep(0.1)
    return state


def rows(run: RunFolder) -> list[dict[str, Any]]:
    text = run.metrics_jsonl.read_text() if run.metrics_jsonl.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def steps(run: RunFolder) -> int:
    return max((row.get("step", 0) for row in rows(run)), default=0)


def started(folder: RunFolder) -> None:
    """A run of 100,000 steps that saves every 10 and stays ended when it fails."""
    many = {"training__max_steps": 100_000, "checkpoint__every_steps": 10, "evaluation__every_steps": 1000}
    start_run(prepare_run(small_plan(**many, recovery__on=False), folder.path))
    assert recorded_runs() == [RunFolder(folder.path.resolve())]


def test_a_stop_keeps_the_work_a_resume_goes_on_and_a_kill_leaves_no_process(folder: RunFolder) -> None:
    started(folder)
    wait(folder, lambda state: steps(folder) >= 14)
    state = stop_run(folder)
    assert state.status == "stopped", state
    assert state.attempts[0].launcher_exit_code == 0
    stopped_at = state.outcome["step"]
    assert newest_complete(folder).name == f"checkpoint-{stopped_at}"
    assert_gone(state.mark)
    assert not folder.final_model.exists()

    start_run(folder, resume="auto")
    state = wait(folder, lambda state: state.status == "running" and steps(folder) > stopped_at + 11)
    complete = [found.step for found in list_checkpoints(folder) if found.problem is None]
    os.kill(state.supervisor.pid, signal.SIGKILL)
    assert_gone(state.mark)
    assert complete[-1] > stopped_at
    assert int(newest_complete(folder).name.partition("-")[2]) >= complete[-1]
    state = read_state(folder)
    assert state.status == "lost"
    assert [attempt.resume for attempt in state.attempts] == [None, f"checkpoint-{stopped_at}"]
    found = [row["step"] for row in rows(folder) if "loss" in row]
    # It went on with the next step: nothing is trained twice, nothing left out.
    assert found == list(range(1, len(found) + 1))


def test_out_of_memory_at_step_7_goes_on_as_3_by_16(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"batch__micro_batch_size": 6, "batch__gradient_accumulation_steps": 8, "training__max_steps": 9}
    prepare_run(small_plan(**changes, checkpoint__every_steps=5, evaluation__every_steps=9), folder.path)
    planned = {name: folder.file(name).read_text() for name in ("run.yaml", "plan.json", "accelerate.yaml")}
    monkeypatch.setenv(FAULTS_VARIABLE, "oom@7:above=3")
    start_run(folder)
    state = wait(folder, lambda state: state.status not in ("starting", "running"))
    assert state.status == "finished", (state, folder.train_log.read_text()[-3000:])
    batch = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}
    assert [attempt.because for attempt in state.attempts] == [None, "cuda_oom"]
    assert [attempt.changes for attempt in state.attempts] == [{}, batch]
    assert state.attempts[1].resume == "checkpoint-5"
    assert state.engine["micro_batch_size"] == 3 and state.outcome["step"] == 9
    assert {name: folder.file(name).read_text() for name in planned} == planned
    assert {row["step"] for row in rows(folder) if "loss" in row} == set(range(1, 10))
    assert_gone(state.mark)


# The stand-in training as two processes under accelerate's torchrun.


@pytest.mark.all
@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("supervisor", signal.SIGKILL),
        ("supervisor", signal.SIGINT),
        ("launcher", signal.SIGKILL),
        ("launcher", signal.SIGTERM),
    ],
)
def test_a_signal_leaves_no_rank_behind(start: Starter, victim: str, number: signal.Signals) -> None:
    one = start(processes=2, EXTRA=1)
    one.wait_for_steps(12, PATIENCE_S)
    one.wait(lambda state: len(state.workers) == 2)
    os.kill(one.supervisor() if victim == "supervisor" else one.launcher(), number)
    state = one.wait(lambda state: not state.is_active, PATIENCE_S)
    assert_gone(one.mark)
    newest = newest_complete(one.run)
    if number == signal.SIGKILL:
        assert state.status == ("lost" if victim == "supervisor" else "failed")
    elif victim == "supervisor":
        assert state.status == "stopped" and state.attempts[0].launcher_exit_code == 0
        assert newest.name == f"checkpoint-{state.outcome['step']}"
    assert newest is not None and "resume" in (state.exit.remedy or "")
