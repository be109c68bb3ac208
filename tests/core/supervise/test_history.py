"""The keeper adds what has finished to the history of measurements, and no trouble there is trouble of the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.history.measurement import device_key
from trainwiz.core.history.run import PLANNED
from trainwiz.core.history.store import load
from trainwiz.core.run.folder import SUPERVISOR_LOG, RunFolder, write_json_atomic

from tests.core.history.measurements import measurement
from tests.core.supervise.conftest import Starter

TRAINING = """
import json, time
from pathlib import Path
Path("engine.json").write_text(json.dumps({"actual": "single", "device": "cpu", "world_size": 1}))
began = time.time()
with open("metrics.jsonl", "a") as file:
    for step in range(1, 9):
        row = {"time_s": began + step * 0.01, "step": step, "loss": 1.0, "step_s": 0.25, "tokens": 100 * step}
        file.write(json.dumps(row) + chr(10))
time.sleep(0.3)
Path("outcome.json").write_text(json.dumps({"outcome": "finished", "step": 8, "max_steps": 8}))
"""


def planned_here(start: Starter) -> RunFolder:
    run = start.folder()
    key = device_key(probe_machine(), "cpu")
    write_json_atomic(run.plan_json, {PLANNED: measurement(machine=key).to_json()})
    return run


def test_a_finished_run_joins_the_history(start: Starter) -> None:
    one = start(planned_here(start), command=[sys.executable, "-c", TRAINING])
    one.wait(lambda state: state.status == "finished")
    one.wait(lambda state: bool(load(probe_machine())))
    (found,) = load(probe_machine())
    assert (found.source, found.step_s, found.steps, found.tokens_per_step) == ("run", 0.25, 7, 100.0)


def test_a_history_that_fails_does_not_hurt_the_run(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainwiz").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one = start(planned_here(start), command=[sys.executable, "-c", TRAINING])
    state = one.wait(lambda state: state.has_ended)
    assert (state.status, state.exit and state.exit.code) == ("finished", 0)
    log = one.run.file(SUPERVISOR_LOG)
    one.wait(lambda state: log.exists() and "could not be added to the history" in log.read_text())


def test_a_failed_run_does_not(start: Starter) -> None:
    broken = TRAINING.replace('Path("outcome.json")', "raise SystemExit(1)\nPath()")
    one = start(planned_here(start), command=[sys.executable, "-c", broken])
    one.wait(lambda state: state.has_ended)
    assert one.state().status == "failed"
    assert load(probe_machine()) == ()
