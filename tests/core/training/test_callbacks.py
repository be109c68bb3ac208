"""The stop that all processes agree on, without a run."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from trainwiz.core.training.callbacks import StopCallback
from trainwiz.core.training.stop import StopRequest
from transformers import TrainerControl, TrainerState

ONE_PROCESS: Any = SimpleNamespace(num_processes=1)
ARGUMENTS: Any = None


def stopping_at(step: int, saved: set[int], event: str) -> tuple[StopCallback, TrainerControl]:
    callback = StopCallback(StopRequest(asked_at=time.monotonic()), ONE_PROCESS, saved)
    control = TrainerControl(should_evaluate=True)
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control)
    return callback, control


@pytest.mark.parametrize("event", ["on_step_end", "on_substep_end"])
@pytest.mark.parametrize(
    ("step", "saved", "saves"), [(4, set(), True), (4, {4}, False), (4, {2}, True), (0, set(), False)]
)
def test_a_stop_saves_once_and_never_before_the_first_step(step: int, saved: set[int], saves: bool, event: str) -> None:
    callback, control = stopping_at(step, saved, event)
    assert callback.stopped
    assert (control.should_training_stop, control.should_save, control.should_evaluate) == (True, saves, False)


def test_at_the_last_step_the_run_ends_by_itself() -> None:
    callback, control = stopping_at(10, set(), "on_step_end")
    assert not callback.stopped
    assert not control.should_training_stop
