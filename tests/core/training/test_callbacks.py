"""The stop that all processes agree on, without a run."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainwiz.core.training import callbacks
from trainwiz.core.training import process as stop
from trainwiz.core.training.callbacks import StopCallback
from trainwiz.core.training.process import StopRequest
from transformers import TrainerControl, TrainerState

from tests.each import each

ONE_PROCESS: Any = SimpleNamespace(num_processes=1)
ARGUMENTS: Any = None


def stopping_at(step: int, saved: set[int], event: str) -> tuple[StopCallback, TrainerControl]:
    callback = StopCallback(StopRequest(asked_at=time.monotonic()), ONE_PROCESS, saved)
    control = TrainerControl(should_evaluate=True)
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control)
    return callback, control


@each("event", ["on_step_end", "on_substep_end"])
@each(("step", "saved", "saves"), [(4, set(), True), (4, {4}, False), (4, {2}, True), (0, set(), False)])
def test_a_stop_saves_once_and_never_before_the_first_step(step: int, saved: set[int], saves: bool, event: str) -> None:
    callback, control = stopping_at(step, saved, event)
    assert callback.stopped
    assert (control.should_training_stop, control.should_save, control.should_evaluate) == (True, saves, False)


def test_at_the_last_step_the_run_ends_by_itself() -> None:
    callback, control = stopping_at(10, set(), "on_step_end")
    assert not callback.stopped
    assert not control.should_training_stop


class Several:
    """The accelerator of `processes` that all say the same."""

    num_processes = 2
    device = "cpu"

    def __init__(self) -> None:
        self.asked = 0

    def reduce(self, values: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum"
        self.asked += 1
        return values * self.num_processes


def test_several_processes_ask_each_other_by_the_clock_in_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now)
    several: Any = Several()
    callback = StopCallback(StopRequest(), several, set())
    asked = []
    for batch in range(200):
        before = several.asked
        assert not callback.leaves_evaluation(batch)
        asked += [batch] if several.asked > before else []
        now += 0.5 if batch < 20 else 0.001
    # 2 s are four batches of half a second, and of short ones never more than 64.
    assert asked == [0, 1, 5, 9, 13, 17, 21, 26, 90, 154]
    before = several.asked
    assert not callback.leaves_evaluation(0)
    assert several.asked == before + 1, (
        "the next evaluation does not wait for the batch at which the last one would have asked"
    )


def test_a_signal_that_comes_twice_is_one_request_and_a_later_one_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    moments = iter([100.0, 100.0, 102.9, 103.1])
    monkeypatch.setattr(stop.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(stop.os, "_exit", ended.append)
    request = StopRequest()
    for _ in range(3):
        request._handle(signal.SIGTERM, None)
    assert request.asked_at == 100.0 and ended == []
    request._handle(signal.SIGTERM, None)
    assert ended == [128 + signal.SIGTERM]


@each(
    ("event", "step", "metrics", "stops"),
    [
        ("on_evaluate", 4, {"eval_loss": 1.0}, True),
        ("on_evaluate", 10, {"eval_loss": 1.0}, False),
        # Left in the middle after the last step: the run is finished all the same.
        ("on_evaluate", 10, {}, False),
        ("on_save", 4, None, True),
        ("on_save", 10, None, False),
        ("on_epoch_begin", 4, None, True),
    ],
)
def test_a_stop_is_seen_after_evaluations_and_saves(
    event: str, step: int, metrics: dict[str, float] | None, stops: bool
) -> None:
    callback = StopCallback(StopRequest(asked_at=time.monotonic()), ONE_PROCESS, {step})
    control = TrainerControl()
    more = {} if metrics is None else {"metrics": metrics}
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control, **more)
    assert (callback.stopped, control.should_training_stop, control.should_save) == (stops, stops, False)


def test_several_processes_finish_their_window_together() -> None:
    several: Any = Several()
    assert not StopCallback(StopRequest(asked_at=1.0), several, set()).drops_window()


def test_one_process_asks_nobody() -> None:
    request = StopRequest()
    callback = StopCallback(request, ONE_PROCESS, set())
    assert not callback.leaves_evaluation(0) and not callback.drops_window() and not callback.agreed()
    request.asked_at = 1.0
    assert callback.leaves_evaluation(1) and callback.drops_window() and callback.agreed()
