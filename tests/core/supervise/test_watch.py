"""The watch in its thread, over a real recorder and the fake driver: what it writes, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.attempts import write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunState, write_state
from trainwiz.core.supervise import watch as watch_module
from trainwiz.core.supervise.recorder import Recorder
from trainwiz.core.supervise.watch import QUIET_S, Watch
from trainwiz.core.telemetry.run_source import RunSource

from tests.core.supervise.conftest import until as wait_for
from tests.fakes.nvml import FakeGpu, FakeNvml

HOT = 0x40
"""nvmlClocksEventReasonHwThermalSlowdown."""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def state(run: RunFolder) -> RunState:
    state = RunState(name="run", status="running", engine={"actual": "single", "device": "cuda:0", "workers": 2})
    state.attempts = [Attempt(1, time.time() - 1.0)]
    return state


@pytest.fixture
def watching(
    run: RunFolder, state: RunState, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeNvml]:
    fake_nvml.load_here(monkeypatch)
    fake_nvml.write([FakeGpu(), FakeGpu()])
    monkeypatch.setattr(watch_module, "LOOK_EVERY_S", 0.1)
    monkeypatch.setitem(watch_module.WATCHED_AFTER_S, "heat", 0.3)  # type: ignore[arg-type]
    monkeypatch.setitem(watch_module.WATCHED_AFTER_S, "gpu_lost", 0.3)  # type: ignore[arg-type]
    watch = Watch(run, state, 0.2)
    recorder = Recorder(run, 0.2, watch.take_sample)
    watch.start()
    recorder.start()
    yield fake_nvml
    watch.stop()
    recorder.stop()
    assert watch.problem is None


def rows(run: RunFolder) -> list[dict[str, Any]]:
    path = run.file("advice.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_lost_card_and_a_hot_one_are_shown_once_and_not_after_the_end(
    run: RunFolder, state: RunState, watching: FakeNvml
) -> None:
    time.sleep(0.5)
    assert rows(run) == []
    watching.write([FakeGpu(lost=True), FakeGpu(throttle=HOT)])
    wait_for(lambda: {row["code"] for row in rows(run)} == {"gpu_lost", "heat"})
    time.sleep(0.5)
    lost, hot = sorted(rows(run), key=lambda row: str(row["code"]))
    assert lost["severity"] == "error" and lost["text"].startswith("GPU 0 cannot be read: the GPU is lost")
    assert hot["severity"] == "warning" and hot["text"].startswith("GPU 1 throttled by heat since")
    state.heartbeat_s = time.time()
    state.supervisor = None
    write_state(run, state)
    snapshot = RunSource(run).poll()
    assert [item.code for item in snapshot.advice].count("heat") == 1
    state.status, state.ended_s = "finished", time.time()
    write_state(run, state)
    assert [item for item in RunSource(run).poll().advice if item.code == "heat"] == []


def test_the_end_takes_back_what_was_of_a_moment(run: RunFolder, state: RunState) -> None:
    clock = [state.attempts[0].started_s + 1.0]
    watch = Watch(run, state, 1.0, clock=lambda: clock[0])
    write_phase(run, "training", since_s=clock[0])
    for step in range(1, 11):
        clock[0] += 2.0
        with run.metrics_jsonl.open("a") as file:
            file.write(json.dumps({"time_s": clock[0], "step": step, "loss": "NaN" if step > 8 else 2.0}) + "\n")
        watch.look()
    for _ in range(60):
        clock[0] += 5.0
        watch.look()
    assert [row["code"] for row in rows(run)] == ["nan_loss", "stalled"]
    watch.stop()
    assert (rows(run)[-1]["code"], rows(run)[-1]["severity"]) == ("stalled", "cleared")


def test_each_attempt_has_a_pace_of_its_own(run: RunFolder, state: RunState) -> None:
    began_s = now_s = time.time()
    watch = Watch(run, state, 1.0, clock=lambda: now_s)
    run.metrics_jsonl.write_text(json.dumps({"time_s": now_s, "step": 3, "loss": "NaN", "step_s": 1.0}) + "\n")
    watch.look()
    assert [line["code"] for line in rows(run)] == ["nan_loss"]
    state.attempts.append(Attempt(2, began_s + 1.0))
    now_s += 2 * QUIET_S
    watch.look()
    assert [line["severity"] for line in rows(run)][1:] == ["cleared"]


def test_a_folder_that_cannot_be_written_ends_nothing(
    run: RunFolder, state: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LOOK_EVERY_S", 0.1)
    run.file("advice.jsonl").mkdir()
    with run.metrics_jsonl.open("a") as file:
        file.write(json.dumps({"time_s": time.time(), "step": 1, "loss": "NaN"}) + "\n")
    watch = Watch(run, state, 1.0)
    watch.start()
    wait_for(lambda: "could not be watched" in (watch.problem or ""))
    assert watch._thread.is_alive()
    run.file("advice.jsonl").rmdir()
    wait_for(lambda: [row["code"] for row in rows(run)] == ["nan_loss"])
    watch.stop()
