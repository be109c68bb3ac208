"""TrainingArguments as the callback writes them down: the planned steps, and what is shown of them."""

from __future__ import annotations

import json

import pytest
from trainwiz.core.telemetry.trainer_state import TrainerArguments, parse_arguments

from tests.each import each


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


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_anything_else_is_empty(text: str) -> None:
    assert parse_arguments(text) == TrainerArguments()
