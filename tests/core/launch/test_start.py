"""What a start is given, and stop_run: whom the signal reaches, and whom not; the files and the command of the next attempt."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch import start
from trainwiz.core.launch.prepare import planned_window, prepare_run, run_yaml_text
from trainwiz.core.launch.start import (
    changed_config,
    own_launcher,
    prepare_again,
    read_run_config,
    setup_of,
    start_run,
    stop_run,
    training_variables,
)
from trainwiz.core.run.attempts import RECOVERY_JSON, Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import IDENTITY_JSON, Identity, settings_now
from trainwiz.core.run.lost import ProcessId, identify, machine_identity
from trainwiz.core.run.state import RunState, read_state, write_state

from tests.core.launch.plans import small_plan
from tests.each import each


def test_the_launcher_is_this_interpreters_own() -> None:
    own = [sys.executable, "-P", "-m", "accelerate.commands.launch"]
    assert own_launcher(["accelerate", "launch", "-m", "x"]) == [*own, "-m", "x"]
    assert own_launcher(["python", "-m", "trainwiz.core.nodes", "."]) == [*own[:3], "trainwiz.core.nodes", "."]


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


@each(("text", "sentence"), [
    ("a: [1", "line 1, column"),
    ("name: x\nbatch: {micro_batch_size: 0}\n", "batch.micro_batch_size"),
    ("nmae: x\n", "nmae"), ("- 1", "run.yaml"), ("\x00", "run.yaml"),
])  # fmt: skip
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
    run = run_kept_by(identify(keeper.pid), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", Mock(side_effect=PermissionError(1, "Operation not permitted")))
        with pytest.raises(CannotRunError, match=r"belongs to another user; only that user can stop it\."):
            stop_run(run, wait_s=0.0)


def test_a_run_on_another_machine_is_stopped_there(tmp_path: Path) -> None:
    run = run_kept_by(ProcessId(1, 0.0), tmp_path, machine="another", host="gpu-box")
    with pytest.raises(CannotRunError, match="is running on gpu-box; stop it there: trainwiz runs stop"):
        stop_run(run)


# The next attempt.


FILES = ("accelerate.yaml", "launch.sh", "deepspeed.json")
HALF = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> RunFolder:
    plan = small_plan(batch__micro_batch_size=6, batch__gradient_accumulation_steps=8, **changes)
    run = prepare_run(plan, folder)
    monkeypatch.chdir(run.path)
    return run


def texts(run: RunFolder) -> dict[str, str]:
    return {name: run.file(name).read_text() for name in FILES if run.file(name).exists()}


def change(run: RunFolder, **changes: Any) -> None:
    write_recoveries(run, [Recovery(2, "cuda_oom", 5, 0.0, changes)])


def test_files_without_the_batch_stay_and_so_does_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "one", monkeypatch, engine__strategy="zero2", engine__processes=2)
    before = texts(run)
    again = prepare_again(run)
    assert texts(run) == before and not (run.path / "attempts").exists(), "without a change all stays as prepared"
    planned = setup_of(again)
    run.file("launch.sh").chmod(0o644)
    change(run, **HALF)
    again = prepare_again(run)
    assert texts(run) == before
    assert json.loads(before["deepspeed.json"])["train_micro_batch_size_per_gpu"] == "auto"
    # What the keeper takes for the next attempt's setup is what its configuration says.
    assert planned is not None and setup_of(again) == planned.changed(HALF)
    assert run.file("launch.sh").stat().st_mode & 0o111
    # The plan's own word stays.
    assert yaml.safe_load(run.run_yaml.read_text())["batch"]["micro_batch_size"] == 6
    assert changed_config(run).batch.micro_batch_size == 3


def test_a_users_deepspeed_file_changes_in_its_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.json"
    document = {
        "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 6, "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto", "bf16": {"enabled": "auto"}, "gradient_clipping": "auto",
    }  # fmt: skip
    file.write_text(json.dumps(document))
    engine = {"engine__strategy": "zero2", "engine__processes": 2, "engine__deepspeed_file": str(file)}
    run = prepared(tmp_path / "one", monkeypatch, **engine)
    # It travels with the folder.
    assert run.file("deepspeed.json").read_text() == file.read_text()
    assert yaml.safe_load(run.run_yaml.read_text())["engine"]["deepspeed_file"] == "deepspeed.json"
    change(run, **HALF)
    prepare_again(run)
    assert json.loads(run.file("deepspeed.json").read_text()) == document | {"train_micro_batch_size_per_gpu": 3}
    # recovery.json is written first: a start finds its own files, whatever a killed keeper has left.
    change(run, **{"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 48})
    monkeypatch.setattr(start, "start_keeper", lambda folder, order: {})
    with pytest.raises(CannotRunError):
        start.start_run(run, resume="auto")
    assert json.loads(run.file("deepspeed.json").read_text())["train_micro_batch_size_per_gpu"] == 1


@each("changes", [{"batch.micro_batch_size": "many"}, {"no.such.section": 3}])
def test_nonsense_changes_are_refused(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "one", monkeypatch)
    change(run, **changes)
    with pytest.raises(UsageError) as caught:
        prepare_again(run)
    (finding,) = caught.value.findings
    assert RECOVERY_JSON in finding.message and "\n" not in finding.message


def test_other_processes_that_were_accepted_reach_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "one", monkeypatch)
    config = read_run_config(run)
    Identity(settings_now(config, run.path)).write(run.file(IDENTITY_JSON))
    two = {"engine.processes": 2, "engine.strategy": "ddp", "batch.gradient_accumulation_steps": 4}
    run.run_yaml.write_text(run_yaml_text(config.with_values(two, "you")))
    monkeypatch.setattr(start, "start_keeper", lambda folder, order: {})
    with pytest.raises(CannotRunError):
        start.start_run(run, resume="auto", accept=["processes", "engine"])
    assert yaml.safe_load(run.file("accelerate.yaml").read_text())["num_processes"] == 2
