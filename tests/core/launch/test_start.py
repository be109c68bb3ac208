from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch.prepare import planned_window, prepare_run
from trainwiz.core.launch.start import own_launcher, start_run, stop_run, training_variables
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import this_process
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


def test_a_folder_without_a_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no run\.yaml"):
        start_run(RunFolder(tmp_path))


def test_stopping_what_does_not_run_changes_nothing(tmp_path: Path) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    assert stop_run(run).status == "prepared"


def test_a_run_on_another_machine_is_not_stopped_from_here(tmp_path: Path) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    write_state(
        run,
        RunState(status="running", host="far", machine="far", supervisor=this_process(), heartbeat_s=9e12, name="one"),
    )
    with pytest.raises(CannotRunError, match="runs on far"):
        stop_run(run)
