"""A training process beside its training: phases, failures, what is logged, reporters that never end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from trainwiz.core.errors import UsageError
from trainwiz.core.run.attempts import PhaseNow, read_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.callbacks import GuardedReporter, take_reporters
from trainwiz.core.training.metrics import MetricsCallback, StepMeter, json_number
from trainwiz.core.training.process import Phases
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


def now(folder: Path) -> PhaseNow:
    found = read_phase(RunFolder(folder))
    assert found is not None
    return found


def test_a_phase_inside_another_gives_it_back_and_how_far_it_has_come_is_no_new_one(tmp_path: Path) -> None:
    phases = Phases()
    with phases.during("tokenising"):
        phases.tell("outside of a run", whoever=True)
    phases.begin(RunFolder(tmp_path / "gone"))
    phases.enter("saving", 3)
    phases.begin(RunFolder(tmp_path))
    phases.enter("training", 7)
    with phases.during("evaluating", 8), phases.during("generating"):
        assert (now(tmp_path).phase, now(tmp_path).step) == ("generating", 8)
    assert (now(tmp_path).phase, now(tmp_path).step) == ("training", 8)
    phases.enter("tokenising")
    since_s, phases._next_detail = now(tmp_path).since_s, 0.0
    time.sleep(0.05)
    phases.tell("12 of 80 rows")
    phases.tell("13 of 80 rows")
    assert now(tmp_path) == PhaseNow("tokenising", since_s, 8, "12 of 80 rows"), "not at every call"


def test_only_rank_0_speaks_but_for_work_of_whoever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    phases = Phases()
    phases.begin(RunFolder(tmp_path))
    phases.enter("tokenising")
    phases.tell("mine")
    assert read_phase(RunFolder(tmp_path)) is None
    phases.tell("12 of 80 rows", whoever=True)
    assert now(tmp_path).detail == "12 of 80 rows"


def test_signals_are_heard_and_threads_told_to_wait_before_torch_is_loaded() -> None:
    """Importing it takes seconds, in which a stop was lost; its OpenMP reads how to wait once."""
    code = (
        "import sys, importlib; [importlib.import_module(name) for name in sys.argv[1:]]; print('torch' in sys.modules)"
    )
    names = ["trainwiz.core.training.__main__", "trainwiz.core.training.probe"]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_numbers_that_json_does_not_have() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5, 3, None, torch.tensor(2.0)]
    assert [json_number(value) for value in values] == ["NaN", "Infinity", "-Infinity", 1.5, 3, None, 2.0]


def test_an_attempt_without_a_checkpoint_takes_the_lines_before_it_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    metrics = MetricsCallback(run, StepMeter(), Accelerator(cpu=True))
    metrics.start_over()
    assert not run.metrics_jsonl.exists()
    run.metrics_jsonl.write_text('{"time_s": 1.0, "step": 3, "loss": 2.0}\n')
    metrics.start_over()
    last = json.loads(run.metrics_jsonl.read_text().splitlines()[-1])
    assert last["resumed_from"] == 0 and "step" not in last


def arguments(folder: Path, *reporters: str) -> TrainingArguments:
    return TrainingArguments(output_dir=str(folder), report_to=list(reporters) or "none", use_cpu=True)


def tell(reporter: GuardedReporter, args: TrainingArguments, losses: list[float]) -> None:
    state, control = TrainerState(max_steps=9, is_world_process_zero=True), TrainerControl()
    calls: Any = reporter
    calls.on_train_begin(args, state, control, model=None)
    for step, loss in enumerate(losses):
        state.global_step = step
        calls.on_log(args, state, control, logs={"loss": loss})
    calls.on_train_end(args, state, control)


def test_a_reporter_that_fails_is_said_once_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    args = arguments(tmp_path, "tensorboard")
    tell(take_reporters(args)[0], args, [3.0, 2.0])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith("tensorboard failed and is disabled: ")


class NeedsServer(TrainerCallback):
    """Fails unless it was told to stay offline, as wandb does without an account."""

    heard: list[str] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if os.environ.get("WANDB_MODE") != "offline":
            raise ConnectionError("no account")

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(os.environ["WANDB_MODE"])


def test_without_a_server_it_writes_into_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "")
    monkeypatch.delenv("WANDB_MODE")
    NeedsServer.heard = []
    tell(GuardedReporter("wandb", NeedsServer), arguments(tmp_path), [1.0])
    assert NeedsServer.heard == ["offline"]
    assert "wandb writes to the run folder because its server is unavailable: no account" in capsys.readouterr().out


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown reporter wandbb; .*tensorboard.*logging\.report_to"):
        take_reporters(arguments(tmp_path, "wandbb", "tensorboard"))
