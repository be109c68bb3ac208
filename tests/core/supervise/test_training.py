"""The keeper above the real training: a stop keeps the work, a kill leaves nothing running, a resume goes on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.checkpoints import list_checkpoints, newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import recorded_runs
from trainwiz.core.run.state import RunState, read_state

from tests.core.launch.plans import small_plan
from tests.fakes.marked import describe, marked_pids, wait_until_gone
from tests.site import FAULTS_VARIABLE

pytestmark = pytest.mark.real
PATIENCE_S = 120.0


def wait(run: RunFolder, good: Callable[[RunState], bool]) -> RunState:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        state = read_state(run)
        if good(state):
            return state
        if state.has_ended:
            break
        time.sleep(0.1)
    raise AssertionError(f"{read_state(run)}\n{run.train_log.read_text(errors='replace')[-3000:]}")


def steps(run: RunFolder) -> int:
    try:
        lines = run.metrics_jsonl.read_text().splitlines()
    except FileNotFoundError:
        return 0
    return max((json.loads(line).get("step", 0) for line in lines), default=0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A run of 100,000 steps that saves every 10 and stays ended when it fails, started."""
    steps = {"training__max_steps": 100_000, "checkpoint__every_steps": 10, "evaluation__every_steps": 1000}
    plan = small_plan(**steps, recovery__on=False)
    folder = prepare_run(plan, tmp_path / "one")
    start_run(folder)
    assert recorded_runs() == [RunFolder(folder.path.resolve())]
    yield folder
    for pid in marked_pids(read_state(folder).mark or "none"):
        os.kill(pid, signal.SIGKILL)


def test_stop_and_resume(run: RunFolder) -> None:
    wait(run, lambda state: steps(run) >= 14)
    state = stop_run(run)
    assert state.status == "stopped", state
    assert state.attempts[0].launcher_exit_code == 0
    stopped_at = state.outcome["step"]
    newest = newest_complete(run)
    assert newest.name == f"checkpoint-{stopped_at}"
    assert wait_until_gone(state.mark or "", 5.0) == [], describe(marked_pids(state.mark))
    assert not run.final_model.exists()

    start_run(run, resume="auto")
    wait(run, lambda state: state.status == "running" and steps(run) > stopped_at)
    state = stop_run(run, now=True)
    assert state.status == "stopped"
    assert [attempt.resume for attempt in state.attempts] == [None, f"checkpoint-{stopped_at}"]
    rows = [json.loads(line) for line in run.metrics_jsonl.read_text().splitlines()]
    found = [row["step"] for row in rows if "loss" in row]
    # It went on with the next step: nothing is trained twice, nothing left out.
    assert found == list(range(1, len(found) + 1))
    assert wait_until_gone(state.mark or "", 5.0) == []


@pytest.mark.parametrize("victim", ["supervisor", pytest.param("launcher", marks=pytest.mark.all)])
def test_a_kill_leaves_no_process_and_every_complete_checkpoint(run: RunFolder, victim: str) -> None:
    state = wait(run, lambda state: steps(run) >= 12 and state.launcher is not None)
    complete = [found.path.name for found in list_checkpoints(run) if found.problem is None]
    process = state.supervisor if victim == "supervisor" else state.launcher
    os.kill(process.pid, signal.SIGKILL)
    assert wait_until_gone(state.mark or "", 5.0) == [], describe(marked_pids(state.mark))
    newest = newest_complete(run)
    assert int(newest.name.partition("-")[2]) >= int(complete[-1].partition("-")[2])
    assert read_state(run).status == ("lost" if victim == "supervisor" else "failed")


def test_out_of_memory_at_step_7_goes_on_as_3_by_16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"batch__micro_batch_size": 6, "batch__gradient_accumulation_steps": 8, "training__max_steps": 9}
    plan = small_plan(**changes, checkpoint__every_steps=5, evaluation__every_steps=9)
    folder = prepare_run(plan, tmp_path / "one")
    planned = {name: folder.file(name).read_text() for name in ("run.yaml", "plan.json", "accelerate.yaml")}
    monkeypatch.setenv(FAULTS_VARIABLE, "oom@7:above=3; oom@9:during=evaluation:above=2")
    start_run(folder)
    try:
        state = read_state(folder)
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not state.has_ended and time.monotonic() < deadline:
            assert state.status in ("starting", "running")
            time.sleep(0.1)
            state = read_state(folder)
        assert state.status == "finished", (state, folder.train_log.read_text()[-3000:])
    finally:
        for pid in marked_pids(read_state(folder).mark or "none"):
            os.kill(pid, signal.SIGKILL)
    batch = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}
    assert [attempt.because for attempt in state.attempts[:2]] == [None, "cuda_oom"]
    assert [attempt.changes for attempt in state.attempts[:2]] == [{}, batch]
    assert state.attempts[1].resume == "checkpoint-5"
    # The evaluation after step 9 ran out of memory: only its own batch became smaller.
    evaluations = [attempt.changes["batch.eval_micro_batch_size"] for attempt in state.attempts[2:]]
    assert evaluations and evaluations[-1] <= 2 and evaluations == sorted(evaluations, reverse=True)
    assert all(batch.items() <= attempt.changes.items() for attempt in state.attempts[2:])
    assert state.engine["micro_batch_size"] == 3 and state.outcome is not None and state.outcome["step"] == 9
    assert {name: folder.file(name).read_text() for name in planned} == planned
    rows = [json.loads(line) for line in folder.metrics_jsonl.read_text().splitlines()]
    assert {row["step"] for row in rows if "loss" in row} == set(range(1, 10))
    assert wait_until_gone(state.mark or "", 5.0) == []
