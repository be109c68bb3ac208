"""What a start is given, and stop_run: whom the signal reaches, and whom not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch.prepare import planned_window, prepare_run
from trainwiz.core.launch.start import own_launcher, start_run, stop_run, training_variables
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import ProcessId, identify, machine_identity
from trainwiz.core.run.state import RunState, read_state, write_state

from tests.core.launch.plans import small_plan
from tests.each import each


def test_the_launcher_is_this_interpreters_own() -> None:
    own = [sys.executable, "-P", "-m", "accelerate.commands.launch"]
    assert own_launcher(["accelerate", "launch", "-m", "x"]) == [*own, "-m", "x"]
    assert own_launcher(["python3", "-m", "accelerate.commands.launch", "y"]) == [*own, "y"]
    assert own_launcher([*own, "y"]) == [*own, "y"]
    assert own_launcher(["python", "-m", "trainwiz.core.nodes", "."])[:3] == [*own[:3]]


def test_the_callers_choice_of_gpus_is_kept() -> None:
    plan = small_plan(engine__device="cuda")
    assert training_variables(plan.config, {})["CUDA_VISIBLE_DEVICES"] == "0"
    assert training_variables(plan.config, {"CUDA_VISIBLE_DEVICES": "3,1"})["CUDA_VISIBLE_DEVICES"] == "3"
    chosen = small_plan(engine__device="cuda", engine__gpus=["1"])
    assert training_variables(chosen.config, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "1"
    assert training_variables(small_plan().config, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == ""
    own = small_plan().config.with_values({"engine.environment.NCCL_P2P_DISABLE": "1"}, "profile")
    assert training_variables(own, {})["NCCL_P2P_DISABLE"] == "1"


def test_the_planned_window_is_one_micro_step_and_one_save() -> None:
    plan = small_plan(training__max_steps=100, checkpoint__every_steps=10)
    window = planned_window(plan, plan.config)
    # 3 micro-batches in a step of 0.5 s; 10 saves in 0.5 s.
    assert (window.work, window.source) == ("micro_step", "planned")
    assert window.window_s == pytest.approx(60 + 2 * 0.5 / 3 + 2 * 0.05)


@each(
    ("text", "sentence"),
    [
        ("a: [1", "line 1, column"),
        ("name: x\nbatch: {micro_batch_size: 0}\n", "batch.micro_batch_size"),
        ("nmae: x\n", "nmae"),
        ("- 1", "run.yaml"),
        ("\x00", "run.yaml"),
    ],
)
def test_a_broken_run_yaml_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    run.run_yaml.write_text(text)
    with pytest.raises(UsageError) as refusal:
        start_run(run)
    assert sentence in str(refusal.value)
    assert read_state(run).status == "prepared"
    assert stop_run(run).status == "prepared", "what does not run is not stopped"
    with pytest.raises(UsageError, match=r"is not a run: it has no run\.yaml"):
        start_run(RunFolder(tmp_path))


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[bytes]]:
    """Something that ends on a signal, in the place of a keeper."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def run_kept_by(keeper: ProcessId | None, folder: Path, **values: object) -> RunFolder:
    run = RunFolder(folder)
    state = RunState(status="running", name=folder.name, heartbeat_s=time.time(), supervisor=keeper)
    state.machine = machine_identity()
    for name, value in values.items():
        setattr(state, name, value)
    write_state(run, state)
    return run


def test_a_stop_is_asked_once_and_an_end_at_once_always(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    asked = {"requested_s": time.time(), "reason": "you", "now": False}
    run = run_kept_by(identify(keeper.pid), tmp_path, status="stopping", stop=asked)
    assert stop_run(run, wait_s=0.0).status == "stopping"
    assert keeper.poll() is None
    stop_run(run, now=True, wait_s=0.0)
    assert keeper.wait(60) == -signal.SIGUSR1


def test_a_process_that_only_has_the_number_is_not_hit(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    now = identify(keeper.pid)
    assert now is not None
    before = ProcessId(keeper.pid, now.create_time - 60.0, None if now.start_ticks is None else now.start_ticks - 6000)
    assert stop_run(run_kept_by(before, tmp_path), now=True, wait_s=0.0).status == "lost"
    time.sleep(0.2)
    assert keeper.poll() is None


def test_a_run_of_another_user_is_refused_in_a_sentence(
    keeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    run = run_kept_by(identify(keeper.pid), tmp_path)
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(CannotRunError, match=r"belongs to another user; only that user can stop it\."):
        stop_run(run, wait_s=0.0)


def test_a_run_on_another_machine_is_stopped_there(tmp_path: Path) -> None:
    run = run_kept_by(ProcessId(1, 0.0), tmp_path, machine="another", host="gpu-box")
    with pytest.raises(CannotRunError, match="is running on gpu-box; stop it there: trainwiz runs stop"):
        stop_run(run)
