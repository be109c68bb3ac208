"""trainer_state.json: real ones against plain JSON; cut, foreign, odd ones as sentences."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.telemetry.diagnosed import diagnose_trainer
from trainwiz.core.telemetry.target import Target, open_files_source
from trainwiz.core.telemetry.trainer_state import (
    NewestState,
    TrainerArguments,
    TrainerState,
    parse_arguments,
    read_trainer_state,
)

from tests.each import each


def state(step: int, rows: list[dict[str, Any]] | None = None, **more: Any) -> str:
    rows = rows if rows is not None else [{"step": at, "loss": 1.0 / at, "epoch": at / 10} for at in range(1, step + 1)]
    return json.dumps({"global_step": step, "max_steps": 100, "epoch": step / 10, "log_history": rows, **more})


def checkpoint(folder: Path, step: int, text: str | None = None) -> Path:
    path = folder / f"checkpoint-{step}" / "trainer_state.json"
    path.parent.mkdir(parents=True)
    path.write_text(state(step) if text is None else text)
    return path


def test_bare_nan_text_and_numbers_too_large_are_values(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(
        '{"global_step": 4, "best_model_checkpoint": "C:\\\\out\\\\checkpoint-4", "log_history": ['
        '{"step": 1, "loss": NaN}, {"step": 2, "loss": "NaN"}, {"step": 3, "loss": "-0.5"}, '
        '{"step": 4, "loss": -Infinity, "note": "text", "flag": true, "huge": 1' + "0" * 400 + "}]}"
    )
    read = read_trainer_state(file)
    assert isinstance(read, TrainerState)
    values = [(name, step, value) for name, step, value, _ in read.scalars()]
    assert [step for _, step, _ in values] == [1, 2, 3, 4, 4]
    assert math.isnan(values[0][2])
    assert math.isnan(values[1][2])
    assert [value for _, _, value in values[2:]] == [-0.5, -math.inf, math.inf]
    assert {name for name, _, _ in values} == {"loss", "huge"}


@each(
    ("text", "words"),
    [
        ("", "is empty"),
        (state(10)[:-30], "not whole JSON"),
        ("[" * 100_000, "not whole JSON"),
        ("{}", "not the state of a Trainer"),
        ("[1, 2]", "not the state of a Trainer"),
        ('{"global_step": 3, "log_history": "none"}', "not the state of a Trainer"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(text)
    read = read_trainer_state(file)
    assert isinstance(read, str)
    assert words in read
    assert "\n" not in read


def test_odd_rows_are_left_out_and_the_others_read(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(state(3, [{"loss": 1.0}, None, 7, {"step": "x", "loss": 2.0}, {"step": 3, "loss": None}]))  # type: ignore[list-item]
    read = read_trainer_state(file)
    assert isinstance(read, TrainerState)
    assert [(name, value) for name, _, value, _ in read.scalars()] == [("loss", 1.0), ("loss", 2.0)]


def test_the_newest_readable_state_counts_and_the_broken_one_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20)
    broken = checkpoint(tmp_path, 30, state(30)[:100])
    newest = NewestState(tmp_path)
    found = newest.look()
    assert found is not None
    assert found.step == 20
    assert len(newest.problems) == 1
    assert str(broken) in newest.problems[0]
    broken.write_text(state(30))
    again = newest.look()
    assert again is not None
    assert (again.step, newest.problems) == (30, ())


def test_of_two_trainings_in_one_folder_the_one_that_wrote_last_counts(tmp_path: Path) -> None:
    os.utime(checkpoint(tmp_path, 50), (1_000, 1_000))
    again = [{"step": 10, "loss": math.nan, "epoch": 0.5}]
    os.utime(checkpoint(tmp_path, 10, state(10, again)), (2_000, 2_000))
    found = NewestState(tmp_path).look()
    assert found is not None
    assert found.step == 10


@pytest.mark.parametrize("loss", [0.5, math.nan])
def test_a_copy_in_any_order_is_still_one_training(tmp_path: Path, loss: float) -> None:
    rows = [{"step": at, "loss": loss, "epoch": at / 10} for at in range(1, 51)]
    os.utime(checkpoint(tmp_path, 50, state(50, rows)), (1_000, 1_000))
    os.utime(checkpoint(tmp_path, 10, state(10, rows[:10])), (2_000, 2_000))
    found = NewestState(tmp_path).look()
    assert found is not None
    assert found.step == 50


def test_a_pipe_in_place_of_a_state_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trainer_state.json")
    assert "no regular file" in str(read_trainer_state(tmp_path / "trainer_state.json"))


@each(
    ("rows", "last", "wall_s", "samples"),
    [
        # transformers 5: rates of the steps that were done, here the 40 since a resume.
        ([1.0] * 10, {"train_runtime": 764.0, "train_steps_per_second": 0.052, "train_loss": 1.0}, 19.1, None),
        # Before: by the planned steps. The losses of all steps add up to what it says, so all are its own.
        (
            [3.0 - at / 5 for at in range(1, 11)],
            {
                "train_runtime": 1910.0,
                "train_steps_per_second": 0.052,
                "train_samples_per_second": 13.403,
                "train_loss": 1.9,
            },
            19.1,
            256,
        ),
        # Nothing proves it: no loss, no numbers, any sign, a sum of something else.
        ([], {"train_runtime": 200.0, "train_steps_per_second": 0.5, "train_loss": 0.5}, None, None),
        ([math.nan] * 10, {"train_runtime": 200.0, "train_steps_per_second": 0.5, "train_loss": 0.5}, None, None),
        ([0.5, -0.5] * 5, {"train_runtime": 200.0, "train_steps_per_second": 0.5, "train_loss": 0.5}, None, None),
        ([1.0] * 10, {"train_runtime": 200.0, "train_steps_per_second": 0.5, "train_loss": 7.0}, None, None),
        # 17.1 a second for 60 s are 256, or a few more, in each of 4 steps.
        ([], {"train_runtime": 60.0, "train_steps_per_second": 1.667, "train_samples_per_second": 17.1}, None, None),
    ],
)
def test_the_last_row_says_what_it_proves(
    tmp_path: Path, rows: list[float], last: dict[str, float], wall_s: float | None, samples: int | None
) -> None:
    history: list[dict[str, Any]] = [{"step": 10 * at, "loss": loss} for at, loss in enumerate(rows, start=1)]
    history.append({"step": 100, **last})
    (tmp_path / "trainer_state.json").write_text(state(100, history, train_batch_size=8))
    snapshot = open_files_source(Target("trainer", tmp_path, "out")).read_all()
    assert snapshot.pace.wall_step_s == (None if wall_s is None else pytest.approx(wall_s, rel=0.02))
    assert snapshot.planned.effective_samples == samples


STOPPED = {"TrainerControl": {"args": {"should_training_stop": True}}}
PATIENCE = {"args": {"early_stopping_patience": 2}, "attributes": {"early_stopping_patience_counter": 2}}


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        (
            {**STOPPED, "EarlyStoppingCallback": PATIENCE},
            "eval_loss was not better than 1.25 in 2 evaluations. The best is of step 20",
        ),
        (STOPPED, "A callback ended the training before its last step"),
        ({"EarlyStoppingCallback": PATIENCE}, None),
    ],
)
def test_early_stopping_is_said(tmp_path: Path, callbacks: dict[str, Any], words: str | None) -> None:
    rows = [{"step": 20, "eval_loss": 1.25}, {"step": 40, "loss": 1.0}, {"step": 60, "eval_loss": 1.5}]
    best = {"best_metric": 1.25, "best_global_step": 20, "stateful_callbacks": callbacks}
    checkpoint(tmp_path, 60, state(60, rows, **best))
    snapshot = open_files_source(Target("trainer", tmp_path, "out")).read_all()
    assert snapshot.status == ("finished" if words else "quiet")
    assert snapshot.ending is not None
    assert (words or "Quiet at step 60 of 100") in snapshot.ending.text
    found = diagnose_trainer(tmp_path)
    assert (found.cause, words is not None and words in found.message) == (None if words else "unknown", bool(words))


@each(
    ("step", "epoch", "steps"),
    [(50, 0.5, 300), (300, 3.0, 300), (310, 3.2, 310), (0, 0.0, None), (50, None, None), (None, 0.5, None)],
)
def test_the_steps_of_all_epochs_are_told_by_one_of_them(
    step: int | None, epoch: float | None, steps: int | None
) -> None:
    assert TrainerArguments(epochs=3.0).steps_in_all(step, epoch) == steps
    assert TrainerArguments(epochs=3.0, max_steps=7).steps_in_all(step, epoch) == 7


def test_paths_and_tokens_stay_out() -> None:
    arguments = parse_arguments(json.dumps({"max_steps": -1, "num_train_epochs": 2, "hub_token": "x", "bf16": True}))
    assert arguments == TrainerArguments(epochs=2.0, shown={"max_steps": "-1", "num_train_epochs": "2", "bf16": "true"})
