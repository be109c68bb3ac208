"""Reporters never end a training: TensorBoard itself, where it can write and where it cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.training.callbacks import GuardedReporter, take_reporters
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


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
    assert len(said) == 1 and said[0].startswith("tensorboard failed and reports no more: ")


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
    assert "wandb writes into the run folder, for its server cannot be used: no account" in capsys.readouterr().out


def test_a_package_that_is_missing_does_not_stop_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    if importlib.util.find_spec("comet_ml"):
        pytest.skip("comet_ml is installed here")
    args = arguments(tmp_path, "comet_ml", "none")
    (reporter,) = take_reporters(args)
    tell(reporter, args, [1.0])
    assert "comet_ml failed and reports no more: " in capsys.readouterr().out


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no reporter wandbb; .*tensorboard.*logging\.report_to"):
        take_reporters(arguments(tmp_path, "wandbb", "tensorboard"))
