"""A stop under the real keeper: its window, saves that outlast it, what is verified afterwards."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.launch.start import stop_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise import ending as save_progress
from trainwiz.core.supervise.ending import SaveProgress
from trainwiz.core.supervise.recovery import Setup

from tests.core.supervise.conftest import LIGHT_LAUNCHER, Started, Starter
from tests.fakes.marked import wait_until_gone
from tests.fakes.nvml import GIB, MIB, FakeGpu, FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401

SAVER = [sys.executable, "-c", LIGHT_LAUNCHER, str(Path(__file__).with_name("slow_saver.py")), "."]


def prepared(start: Starter, **values: Any) -> RunFolder:
    """A folder whose first state says `values` too."""
    run = start.folder()
    document = json.loads(run.state_json.read_text())
    run.state_json.write_text(json.dumps({**document, **values}))
    return run


def with_plan(run: RunFolder, accumulation: int) -> RunFolder:
    run.plan_json.write_text(json.dumps({"batch": {"accumulation": accumulation, "world_size": 1}}))
    return run


def verified(state: RunState) -> dict[str, Any]:
    found = state.stop["verified"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("world", "work", "work_s"), [(1, "micro_step", 38 * 60 / 651)])
def test_the_window_follows_what_is_measured(start: Starter, world: int, work: str, work_s: float) -> None:
    one = start(with_plan(start.folder(), 651), command=SAVER, SAID_STEP_S=38 * 60, WORLD=world)
    state = one.wait(lambda state: state.window is not None)
    assert (state.window["work"], state.window["work_s"]) == (work, pytest.approx(work_s))
    assert state.grace_s == state.window["window_s"] == pytest.approx(60 + 1.25 * work_s)
    state = stop_run(one.run)
    assert state.status == "stopped"
    assert verified(state) == {"processes_left": [], "gpu": None, "text": "No process of the run is left."}
    # The keeper and its guard end after the last word.
    assert wait_until_gone(one.mark, 2.0) == []


def test_a_save_that_still_grows_is_not_cut(start: Starter) -> None:
    # No step is measured (0 s), so the window stays at what the state says.
    one = start(prepared(start, grace_s=1.0), command=SAVER, SAID_STEP_S=-1, SAVE_S=4)
    one.wait_for_steps(2)
    state = stop_run(one.run, wait_s=20.0)
    assert state.status == "stopped" and state.exit is not None
    assert "was killed" not in state.exit.message
    assert (one.run.path / f"checkpoint-{state.outcome['step']}" / "trainer_state.json").exists()


def test_a_save_that_hangs_is_cut_after_a_while(tmp_path: Path) -> None:
    now = 0.0
    progress = SaveProgress(tmp_path, lambda: now)
    assert not progress.moves()
    (tmp_path / "checkpoint-7").mkdir()
    assert progress.moves()
    now = save_progress.STALLED_AFTER_S
    assert progress.moves()
    now += 1
    assert not progress.moves()
    (tmp_path / "checkpoint-7" / "optimizer.pt").write_bytes(b"0")
    assert progress.moves()
    (tmp_path / "checkpoint-7" / "trainer_state.json").write_text("{}")
    # Whole: only its processes have still to end.
    assert progress.moves()
    now += save_progress.ENDS_WITHIN_S + 1
    assert not progress.moves()
    (tmp_path / "final_model.partial").mkdir()
    assert progress.moves()
    (tmp_path / "final_model.partial").rename(tmp_path / "final_model")
    now += save_progress.ENDS_WITHIN_S + 1
    assert not progress.moves()


@contextmanager
def driver_follows(nvml: FakeNvml, one: Started, held_bytes: int) -> Iterator[None]:
    """A driver that shows `held_bytes` of the training process, and gives them back half a second after its end."""
    over = threading.Event()

    def follow() -> None:
        pid = one.wait(lambda state: bool(state.workers)).workers[0].pid
        nvml.write([gpu(held_bytes, {pid: held_bytes})])
        while not over.wait(0.05) and Path(f"/proc/{pid}").exists():
            pass
        time.sleep(0.5)
        nvml.write([gpu(0, {})])

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def gpu(held_bytes: int, processes: dict[int, int]) -> FakeGpu:
    return FakeGpu(uuid="GPU-one", memory_used=held_bytes + 200 * MIB, processes=processes)


def test_gpu_memory_is_verified_given_back(
    start: Starter,
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_nvml.write([gpu(0, {})])
    for name, value in fake_nvml.environment().items():
        monkeypatch.setenv(name, value)
    one = start(command=SAVER, SAID_STEP_S=0.1)
    with driver_follows(fake_nvml, one, 7 * GIB):
        one.wait(lambda state: _shows(one.run, 7 * GIB))
        state = stop_run(one.run, wait_s=30.0)
    assert state.status == "stopped"
    found = verified(state)
    assert found["gpu"] == {"verdict": "free", "held_bytes": 7 * GIB, "pids_left": [], "reason": ""}
    assert found["text"] == "No process of the run is left, and its 7.0 GiB on the GPU are free again."


def _shows(run: RunFolder, held_bytes: int) -> bool:
    text = run.system_jsonl.read_text() if run.system_jsonl.exists() else ""
    return f'"memory_used_bytes":{held_bytes}' in text.replace(" ", "")


@pytest.mark.parametrize("now", [False, True])
def test_a_stop_while_it_waits_between_attempts_ends_at_once(start: Starter, now: bool) -> None:
    setup = Setup(True, 9, 4, 2, 1, None, 0)
    one = start(setup=setup, FAIL_AT=3, FAIL_WITH="NCCL error in: unhandled system error, NCCL version 2.21.5")
    state = one.wait(lambda state: state.has_ended or (state.attempts[-1].ended_s is not None))
    assert state.status == "starting", state
    began = time.monotonic()
    state = stop_run(one.run, now=now, wait_s=20.0)
    assert state.status == "stopped" and state.exit is not None and state.exit.code == 130
    assert time.monotonic() - began < 3.0
    assert verified(state)["processes_left"] == []
    assert wait_until_gone(one.mark, 1.0) == []


def test_a_child_without_the_mark_is_ended_too(start: Starter, tmp_path: Path) -> None:
    """A program that the training started with an environment of its own, and in a session of its own."""
    code = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    one = start(command=[sys.executable, "-c", code])
    one.wait(lambda state: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    pid = int((tmp_path / "pid").read_text())
    state = stop_run(one.run, now=True, wait_s=20.0)
    assert state.status == "stopped" and verified(state)["processes_left"] == []
    assert not Path(f"/proc/{pid}").exists()
