"""Stops of the real training at awkward moments: inside a long step, an evaluation, the last evaluation."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.run.attempts import read_phase
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RunFolder

from tests.core.training.runs import metrics, start, tiny_config, train, write_run
from tests.fakes.descendants import descendants
from tests.site import FAULTS_VARIABLE

pytestmark = pytest.mark.real

LEAVES_WITHIN_S = 60.0
"""The end of a process on a busy machine included; what is left here would take two minutes."""
EVALUATION = {"data__validation_rows": 60, "batch__eval_micro_batch_size": 1}
TWO: dict[str, Any] = {"engine__processes": 2, "batch__gradient_accumulation_steps": 1}
ENGINES = {
    "single": {},
    "ddp": {**TWO, "engine__strategy": "ddp"},
    "zero2, two processes": {**TWO, "engine__strategy": "zero2"},
}


def stopped_when(
    folder: Path, config: RunConfig, due: Callable[[], bool], *arguments: str
) -> tuple[dict[str, Any], float]:
    """Start, stop all processes once `due`; the outcome, and how long the end took in seconds."""
    process = start(folder, config, *arguments)
    try:
        deadline = time.monotonic() + 150
        while not due():
            assert process.poll() is None and time.monotonic() < deadline, _log(folder)
            time.sleep(0.05)
        began = time.monotonic()
        # Every process, as the keeper does it; not the launcher, which would only pass it on.
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGTERM)
        assert process.wait(100) == 0, _log(folder)
        return json.loads((folder / "outcome.json").read_text()), time.monotonic() - began
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pid in (*descendants(process.pid), process.pid):
        if process.poll() is None:
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _log(folder: Path) -> str:
    return (folder / "train.log").read_text(errors="replace")[-4000:]


def evaluates(folder: Path, step: int) -> Callable[[], bool]:
    def due() -> bool:
        phase = read_phase(RunFolder(folder))
        return phase is not None and (phase.phase, phase.step) == ("evaluating", step)

    return due


def evaluated(folder: Path) -> list[int]:
    return [line["step"] for line in metrics(folder) if "eval_loss" in line]


@pytest.mark.parametrize(
    "engine", ["single", *(pytest.param(name, marks=pytest.mark.all) for name in ("ddp", "zero2, two processes"))]
)
def test_an_evaluation_under_way_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    if "zero" in engine and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (pip install deepspeed)")
    config = tiny_config(**EVALUATION, **ENGINES[engine], training__max_steps=12)
    folder = write_run(tmp_path / "one", config)
    with monkeypatch.context() as slow:
        slow.setenv(FAULTS_VARIABLE, "slow@6:during=evaluation:seconds=1")
        outcome, _ = stopped_when(folder, config, evaluates(folder, 6))
    assert (outcome["outcome"], outcome["step"]) == ("stopped", 6)
    newest = newest_complete(RunFolder(folder))
    assert newest is not None and newest.name == "checkpoint-6"
    # One that came to its end would have logged its result.
    assert evaluated(folder) == []
    assert train(folder, config, "--resume", "checkpoint-6")["outcome"] == "finished"
    assert evaluated(folder) == [12]


def test_a_single_process_drops_a_long_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(batch__micro_batch_size=1, batch__gradient_accumulation_steps=40, training__max_steps=6)
    folder = write_run(tmp_path / "one", config)
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@3:seconds=3")
    outcome, took_s = stopped_when(folder, config, lambda: "slow at step 3" in _log(folder))
    assert took_s < LEAVES_WITHIN_S
    assert (outcome["outcome"], outcome["step"]) == ("stopped", 2)
    newest = newest_complete(RunFolder(folder))
    assert newest is not None and newest.name == "checkpoint-2"


def test_two_processes_finish_the_step_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = {**ENGINES["ddp"], "batch__gradient_accumulation_steps": 10}
    config = tiny_config(**two, batch__micro_batch_size=1, training__max_steps=6)
    folder = write_run(tmp_path / "one", config)
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@3:seconds=0.3:rank=1")
    outcome, _ = stopped_when(folder, config, lambda: "slow at step 3" in _log(folder))
    assert (outcome["outcome"], outcome["step"]) == ("stopped", 3)
    newest = newest_complete(RunFolder(folder))
    assert newest is not None and newest.name == "checkpoint-3"
