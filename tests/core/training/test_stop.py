"""Stops: the real training inside a long step and an evaluation, a run started by hand, and what all processes agree on."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.attempts import read_phase
from trainwiz.core.run.checkpoints import complete_checkpoints, newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import recorded_runs, remove_run
from trainwiz.core.run.state import read_state
from trainwiz.core.training import process as processes
from trainwiz.core.training.callbacks import ASK_EVERY, MOST_SKIPPED, LossGuard, NonFiniteLoss, StopCallback
from trainwiz.core.training.process import StopRequest
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.core.training.runs import (
    Training,
    evaluations,
    log_of,
    metrics,
    start,
    stop_when,
    tiny_config,
    train,
    write_run,
)
from tests.each import each
from tests.site import FAULTS_VARIABLE

LEAVES_WITHIN_S = 60.0
"""The end of a process on a busy machine included; what is left here would take two minutes."""
EVALUATION = {"data__validation_rows": 60, "batch__eval_micro_batch_size": 1}
TWO: dict[str, Any] = {"engine__processes": 2, "batch__gradient_accumulation_steps": 1}
ENGINES: dict[str, dict[str, Any]] = {
    "single": {},
    "ddp": {**TWO, "engine__strategy": "ddp"},
    "zero2, two processes": {**TWO, "engine__strategy": "zero2"},
}


def newest_of(folder: Path) -> str:
    newest = newest_complete(RunFolder(folder))
    return newest.name if newest is not None else "none"


def evaluates(folder: Path, step: int) -> Callable[[], bool]:
    def due() -> bool:
        phase = read_phase(RunFolder(folder))
        return phase is not None and (phase.phase, phase.step) == ("evaluating", step)

    return due


@pytest.mark.real
@pytest.mark.parametrize(
    "engine", ["single", *(pytest.param(name, marks=pytest.mark.all) for name in ("ddp", "zero2, two processes"))]
)
def test_an_evaluation_under_way_is_left_and_a_single_process_drops_a_long_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if "zero" in engine and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (pip install deepspeed)")
    accumulation = {"batch__micro_batch_size": 1, "batch__gradient_accumulation_steps": 20}
    config = tiny_config(
        **EVALUATION, **(ENGINES[engine] | accumulation), training__max_steps=8, checkpoint__every_steps=4
    )
    folder = write_run(tmp_path / "one", config)
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@4:during=evaluation:seconds=1")
    outcome = stop_when(folder, start(folder, config), evaluates(folder, 4))
    assert (outcome["outcome"], outcome["step"], newest_of(folder)) == ("stopped", 4, "checkpoint-4")
    # One that came to its end would have logged its result.
    assert evaluations(folder) == []
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@6:seconds=3" if engine == "single" else "slow@6:seconds=0.3:rank=1")
    process = start(folder, config, "--resume", "checkpoint-4")
    outcome = stop_when(folder, process, lambda: "slow at step 6" in log_of(folder))
    # Several processes finish the step together.
    last = 5 if engine == "single" else 6
    assert (outcome["outcome"], outcome["step"], newest_of(folder)) == ("stopped", last, f"checkpoint-{last}")
    monkeypatch.delenv(FAULTS_VARIABLE)
    train(folder, config, "--resume", newest_of(folder))
    assert [line["step"] for line in evaluations(folder)] == [8]


@pytest.mark.real
def test_a_run_by_hand_is_seen_guarded_stopped_and_gone_on_with(tmp_path: Path) -> None:
    config = tiny_config(training__max_steps=5000, checkpoint__every_steps=5000)
    folder = write_run(tmp_path / "by hand", config)
    run = RunFolder(folder)
    process = start(folder, config, forked=False)
    _wait_until_it_trains(run, process)
    assert read_state(run).engine["actual"] == "single"
    assert recorded_runs() == [run]

    assert _refusal(folder) == "by hand is already running. Monitor it with: trainwiz monitor " + shlex.quote(
        str(folder)
    )
    for meddle in (lambda: start_run(run, resume="auto"), lambda: remove_run(run)):
        with pytest.raises(UsageError):
            meddle()
    assert not list(folder.glob("failure-rank*"))

    state = stop_run(run)
    assert state.status == "stopped" and state.outcome is not None
    stopped = state.outcome["step"]
    assert process.wait(60) == 0
    assert state.exit is not None
    assert (
        state.exit.message
        == f"Stopped at step {stopped:,} by you. checkpoint-{stopped} is the newest complete checkpoint."
    )
    assert max(line["step"] for line in metrics(folder)) == stopped

    assert _refusal(folder) == (
        f"by hand was already trained up to step {stopped:,}; nothing is overwritten. "
        f"Resume with: ./launch.sh --resume checkpoint-{stopped}"
    )
    assert read_state(run).status == "stopped"

    process = start(folder, config, "--resume", f"checkpoint-{stopped}")
    _wait_until_it_trains(run, process)
    state = stop_run(run, now=True)
    assert (
        state.status == "stopped"
        and state.exit is not None
        and "immediately, without a checkpoint" in state.exit.message
    )
    assert process.wait(60) != 0
    assert [attempt.resume for attempt in state.attempts] == [None, f"checkpoint-{stopped}"]


def _refusal(folder: Path) -> str:
    """What a second start says, as the launcher would start it."""
    command = [sys.executable, "-m", "trainwiz.core.training", "."]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 2
    return ended.stderr.strip()


def _wait_until_it_trains(run: RunFolder, process: Training) -> None:
    deadline = time.monotonic() + 120
    while read_state(run).status != "running":
        assert process.poll() is None and time.monotonic() < deadline, run.train_log.read_text()[-4000:]
        time.sleep(0.05)


ONE_PROCESS: Any = SimpleNamespace(num_processes=1)
ARGUMENTS: Any = None


@each("event", ["on_step_end", "on_substep_end"])
@each(("step", "saved", "saves"), [(4, set(), True), (4, {4}, False), (4, {2}, True), (0, set(), False)])
def test_a_stop_saves_once_and_never_before_the_first_step(step: int, saved: set[int], saves: bool, event: str) -> None:
    callback = StopCallback(StopRequest(asked_at=1.0), ONE_PROCESS, saved)
    control = TrainerControl(should_evaluate=True)
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control)
    assert callback.stopped
    assert (control.should_training_stop, control.should_save, control.should_evaluate) == (True, saves, False)


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


def test_several_processes_ask_each_other_now_and_then_in_an_evaluation() -> None:
    several: Any = Several()
    callback = StopCallback(StopRequest(), several, set())
    asked = []
    for batch in [*range(40), 0]:
        before = several.asked
        assert not callback.leaves_evaluation(batch)
        asked += [batch] if several.asked > before else []
    assert asked == [0, ASK_EVERY, 2 * ASK_EVERY, 0]


def test_a_signal_that_comes_twice_is_one_request_and_a_later_one_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    moments = iter([100.0, 100.0, 102.9, 103.1])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(processes.os, "_exit", ended.append)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        request = StopRequest.install()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
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
        ("on_step_end", 10, None, False),
    ],
)
def test_a_stop_is_seen_after_evaluations_and_saves_and_the_last_step_ends_the_run_by_itself(
    event: str, step: int, metrics: dict[str, float] | None, stops: bool
) -> None:
    callback = StopCallback(StopRequest(asked_at=time.monotonic()), ONE_PROCESS, {step})
    control = TrainerControl()
    more = {} if metrics is None else {"metrics": metrics}
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control, **more)
    assert (callback.stopped, control.should_training_stop, control.should_save) == (stops, stops, False)


def test_one_process_asks_nobody_and_several_finish_their_window_together() -> None:
    request = StopRequest()
    callback = StopCallback(request, ONE_PROCESS, set())
    assert not callback.leaves_evaluation(0) and not callback.drops_window() and not callback.agreed()
    request.asked_at = 1.0
    assert callback.leaves_evaluation(1) and callback.drops_window() and callback.agreed()
    several: Any = Several()
    assert not StopCallback(request, several, set()).drops_window()


# A loss that is no number: the run ends before it can be saved, in all processes at the same step.

NAN = torch.tensor(float("nan"))
FINE = torch.tensor(2.5)


class Guarded:
    """A guard and the optimizer steps that it is shown; `skips` stands for what the scaler of fp16 decides."""

    def __init__(self, folder: Path, on_nan: Any = "stop") -> None:
        self.accelerator = SimpleNamespace(
            num_processes=1, optimizer_step_was_skipped=False, device=torch.device("cpu"), is_main_process=True
        )
        self.guard = LossGuard(on_nan, cast(Accelerator, self.accelerator), RunFolder(folder))
        self.state = TrainerState()

    def step(self, *losses: torch.Tensor, skips: bool = False) -> None:
        for loss in losses:
            self.guard.see(loss)
        self.accelerator.optimizer_step_was_skipped = skips
        self.guard.on_optimizer_step(cast(TrainingArguments, None), self.state, TrainerControl())
        self.state.global_step += 1


@each("bad", [float("nan"), -float("inf")])
def test_one_bad_micro_batch_of_a_window_ends_it(tmp_path: Path, bad: float) -> None:
    guarded = Guarded(tmp_path)
    guarded.step(FINE, FINE)
    with pytest.raises(NonFiniteLoss, match=r"NaN or infinite at step 2\. There is no earlier checkpoint"):
        guarded.step(FINE, torch.tensor(bad), FINE)


def test_overflows_that_the_scaler_leaves_out_are_no_end(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    for _ in range(5):
        for _ in range(MOST_SKIPPED - 1):
            guarded.step(NAN, skips=True)
        guarded.step(FINE)
    for _ in range(200):
        guarded.step(FINE, skips=True)
    with pytest.raises(NonFiniteLoss, match=f"{MOST_SKIPPED} steps in a row"):
        for _ in range(MOST_SKIPPED):
            guarded.step(NAN, skips=True)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    guarded = Guarded(tmp_path)
    assert guarded.guard.may_save(model, 4)
    with torch.no_grad():
        model.bias[1] = float("inf")
    with pytest.raises(NonFiniteLoss, match="step 4: they are not saved"):
        guarded.guard.may_save(model, 4)
    goes_on = Guarded(tmp_path, "continue")
    goes_on.step(NAN)
    assert not goes_on.guard.may_save(model, 4)
    with pytest.raises(NonFiniteLoss, match="no final_model"):
        goes_on.guard.refuse_final(model, 9)
    model.bias.requires_grad_(False)
    assert goes_on.guard.may_save(model, 4), "frozen weights are not of this training"


def test_weights_that_are_shared_out_are_looked_at_where_they_are(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    cast(Any, model.weight).ds_tensor = torch.tensor([1.0, float("nan")])
    model.weight.data = torch.empty(0)
    with pytest.raises(NonFiniteLoss, match="they are not saved"):
        Guarded(tmp_path).guard.may_save(model, 4)


@pytest.mark.real
@pytest.mark.parametrize(("processes", "fault"), [(1, "nan@8"), pytest.param(2, "nan@8:rank=1", marks=pytest.mark.all)])
def test_a_real_run_ends_at_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, fault: str
) -> None:
    monkeypatch.setenv("TRAINWIZ_FAULTS", fault)
    config = tiny_config(
        training__max_steps=12,
        checkpoint__every_steps=3,
        checkpoint__keep=2,
        checkpoint__keep_best=True,
        evaluation__every_steps=3,
        engine__processes=processes,
        engine__strategy="single" if processes == 1 else "ddp",
        logging__every_steps=4,
    )
    folder = write_run(tmp_path / "run", config)
    assert start(folder, config).wait(240) != 0
    assert {found.step for found in complete_checkpoints(RunFolder(folder))} == {3, 6}
    assert not (folder / "final_model").exists() and not list(folder.glob("*partial*"))
    failures = [json.loads(path.read_text()) for path in sorted(folder.glob("failure-rank*.json"))]
    assert len(failures) == processes, "all ranks end by themselves, none hangs in a collective"
    for failure in failures:
        assert failure["type"] == "NonFiniteLoss" and failure["findings"][0]["code"] == "nan_loss"
        assert failure["message"] == "The loss is NaN or infinite at step 8. The last good checkpoint is checkpoint-6."
    for checkpoint in (folder / "checkpoint-3", folder / "checkpoint-6"):
        assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "model.safetensors").values())


@pytest.mark.real
@pytest.mark.all
def test_a_real_run_that_goes_on_saves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWIZ_FAULTS", "nan@5")
    config = tiny_config(training__max_steps=8, checkpoint__every_steps=3, recovery__on_nan="continue")
    folder = write_run(tmp_path / "run", config)
    assert start(folder, config).wait(240) != 0
    assert [row["step"] for row in metrics(folder) if row.get("loss") == "NaN"] == [5, 6, 7, 8]
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-3"]
    assert not (folder / "final_model").exists()
    assert "no final_model" in json.loads((folder / "failure-rank0.json").read_text())["message"]
