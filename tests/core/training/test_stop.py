"""Stops: the real training inside a long step and an evaluation, a run started by hand, what all processes agree on; and
what a training process does beside its training: phases, logged numbers, reporters that never end it."""

from __future__ import annotations

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
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.attempts import PhaseNow, read_phase
from trainwiz.core.run.checkpoints import complete_checkpoints, newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import recorded_runs, remove_run
from trainwiz.core.run.state import read_state
from trainwiz.core.training import process as processes
from trainwiz.core.training.callbacks import (
    ASK_EVERY,
    MOST_SKIPPED,
    LossGuard,
    NonFiniteLoss,
    StopCallback,
    take_reporters,
)
from trainwiz.core.training.metrics import MetricsCallback, StepMeter, json_number
from trainwiz.core.training.process import Phases, StopRequest
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.core.training.runs import (
    Forked,
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


@pytest.mark.real
def test_an_evaluation_under_way_is_left_and_a_single_process_drops_a_long_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(
        data__validation_rows=60, batch__eval_micro_batch_size=1, batch__micro_batch_size=1,
        batch__gradient_accumulation_steps=20, training__max_steps=8, checkpoint__every_steps=4, checkpoint__final="best",
    )  # fmt: skip
    folder = write_run(tmp_path / "one", config)
    run = RunFolder(folder)

    def evaluates(step: int = 4) -> bool:
        phase = read_phase(run)
        return phase is not None and (phase.phase, phase.step) == ("evaluating", step)

    def stopped(due: Callable[[], bool], *resume: str) -> tuple[str, int, str]:
        outcome = stop_when(folder, start(folder, config, *resume), due)
        newest = newest_complete(run)
        return outcome["outcome"], outcome["step"], newest.name if newest is not None else "none"

    monkeypatch.setenv(FAULTS_VARIABLE, "slow@4:during=evaluation:seconds=1")
    assert stopped(evaluates) == ("stopped", 4, "checkpoint-4")
    # One that came to its end would have logged its result.
    assert evaluations(folder) == []
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@6:seconds=2")
    found = stopped(lambda: "slow at step 6" in log_of(folder), "--resume", "checkpoint-4")
    assert found == ("stopped", 5, "checkpoint-5")
    # The evaluation after the last step decides what final_model is: a resumed run does it first.
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@8:during=evaluation:seconds=1")
    assert stopped(lambda: evaluates(8), "--resume", "checkpoint-5") == ("stopped", 8, "checkpoint-8")
    monkeypatch.delenv(FAULTS_VARIABLE)
    assert evaluations(folder) == []
    final = train(folder, config, "--resume", "checkpoint-8")["final"]
    (evaluated,) = evaluations(folder)
    assert final == {"step": 8, "which": "best", "metric": "eval_loss", "score": evaluated["eval_loss"]}


@pytest.mark.real
def test_a_run_by_hand_is_seen_guarded_stopped_and_gone_on_with(tmp_path: Path) -> None:
    config = tiny_config(training__max_steps=5000, checkpoint__every_steps=5000)
    folder = write_run(tmp_path / "by hand", config)
    run = RunFolder(folder)
    process = _by_hand(run)
    _wait_until_it_trains(run, process)
    assert read_state(run).engine["actual"] == "single"
    assert recorded_runs() == [run]

    running = "by hand is already running. Monitor it with: trainwiz monitor "
    refused(folder, config, running + shlex.quote(str(folder)))
    for meddle in (lambda: start_run(run, resume="auto"), lambda: remove_run(run)):
        with pytest.raises(UsageError):
            meddle()
    assert not list(folder.glob("failure-rank*"))

    state = stop_run(run)
    assert state.status == "stopped" and state.outcome is not None
    stopped = state.outcome["step"]
    assert process.wait(60) == 0
    assert state.exit is not None
    said = f"Stopped at step {stopped:,} by you. checkpoint-{stopped} is the newest complete checkpoint."
    assert state.exit.message == said
    assert max(line["step"] for line in metrics(folder)) == stopped

    resume = f"Resume with: ./launch.sh --resume checkpoint-{stopped}"
    refused(folder, config, f"by hand was already trained up to step {stopped:,}; nothing is overwritten. {resume}")
    assert read_state(run).status == "stopped"

    again = start(folder, config, "--resume", f"checkpoint-{stopped}")
    _wait_until_it_trains(run, again)
    state = stop_run(run, now=True)
    assert state.status == "stopped" and state.exit is not None
    assert "immediately, without a checkpoint" in state.exit.message
    assert again.wait(60) != 0
    assert [attempt.resume for attempt in state.attempts] == [None, f"checkpoint-{stopped}"]


def _by_hand(run: RunFolder) -> subprocess.Popen[bytes]:
    """By its script, from somewhere else."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with run.train_log.open("ab") as log:
        return subprocess.Popen(
            ["/bin/sh", str(run.file("launch.sh"))], cwd="/", env={**os.environ, "PATH": path, "CDPATH": "/"},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def refused(folder: Path, config: RunConfig, sentence: str) -> None:
    """A second start says so."""
    assert start(folder, config).wait(600) == 2
    assert f"{sentence}\n" in (folder / "train.log").read_text()


def _wait_until_it_trains(run: RunFolder, process: subprocess.Popen[bytes] | Forked) -> None:
    deadline = time.monotonic() + 120
    # Before its state is written a run whose lock is held is said to run, too.
    while (state := read_state(run)).status != "running" or state.engine.get("actual") is None:
        assert process.poll() is None and time.monotonic() < deadline, run.train_log.read_text()[-4000:]
        time.sleep(0.05)


ONE_PROCESS: Any = SimpleNamespace(num_processes=1)
ARGUMENTS: Any = None


def test_several_processes_ask_each_other_now_and_then_in_an_evaluation() -> None:
    asked: list[int] = []
    batches = [*range(40), 0]
    several: Any = SimpleNamespace(
        num_processes=2, device="cpu", reduce=lambda values, reduction: (asked.append(batch), 2 * values)[1]
    )
    callback = StopCallback(StopRequest(), several, set())
    for batch in batches:
        assert not callback.leaves_evaluation(batch)
    assert asked == [0, ASK_EVERY, 2 * ASK_EVERY, 0]
    assert not StopCallback(StopRequest(asked_at=1.0), several, set()).drops_window(), "they finish it together"


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


@each(("event", "step", "more", "saved", "stops", "saves"), [
    *((event, 4, {}, saved, True, 4 not in saved)
      for event in ("on_step_end", "on_substep_end") for saved in (set(), {4}, {2})),
    ("on_step_end", 0, {}, set(), True, False),
    ("on_substep_end", 0, {}, set(), True, False),
    ("on_step_end", 10, {}, {10}, False, False),
    ("on_evaluate", 4, {"metrics": {"eval_loss": 1.0}}, {4}, True, False),
    ("on_evaluate", 10, {"metrics": {"eval_loss": 1.0}}, {10}, False, False),
    # Left in the middle after the last step: the run is finished all the same.
    ("on_evaluate", 10, {"metrics": {}}, {10}, False, False),
    ("on_save", 4, {}, {4}, True, False),
    ("on_save", 10, {}, {10}, False, False),
    ("on_epoch_begin", 4, {}, {4}, True, False),
])  # fmt: skip
def test_a_stop_saves_once_never_before_the_first_step_and_the_last_step_ends_the_run_by_itself(
    event: str, step: int, more: dict[str, Any], saved: set[int], stops: bool, saves: bool
) -> None:
    callback = StopCallback(StopRequest(asked_at=1.0), ONE_PROCESS, saved)
    control = TrainerControl(should_evaluate=event == "on_substep_end" or (event == "on_step_end" and stops))
    getattr(callback, event)(ARGUMENTS, TrainerState(global_step=step, max_steps=10), control, **more)
    assert (callback.stopped, control.should_training_stop, control.should_save) == (stops, stops, saves)
    assert not control.should_evaluate


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
    with pytest.raises(NonFiniteLoss, match=r"infinite at step 350\."):
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
    # Those that are shared out are looked at where they are.
    cast(Any, model.weight).ds_tensor = torch.tensor([1.0, float("nan")])
    model.weight.data = torch.empty(0)
    with pytest.raises(NonFiniteLoss, match="they are not saved"):
        guarded.guard.may_save(model, 4)


@pytest.mark.real
def test_a_real_run_ends_at_its_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS_VARIABLE, "nan@8")
    config = tiny_config(
        training__max_steps=12, checkpoint__every_steps=3, checkpoint__keep=2, checkpoint__keep_best=True,
        evaluation__every_steps=3, logging__every_steps=4,
    )  # fmt: skip
    folder = write_run(tmp_path / "run", config)
    assert start(folder, config).wait(240) != 0
    assert {found.step for found in complete_checkpoints(RunFolder(folder))} == {3, 6}
    assert not (folder / "final_model").exists() and not list(folder.glob("*partial*"))
    failure = json.loads((folder / "failure-rank0.json").read_text())
    assert failure["type"] == "NonFiniteLoss" and failure["findings"][0]["code"] == "nan_loss"
    assert failure["message"] == "The loss is NaN or infinite at step 8. The last good checkpoint is checkpoint-6."
    for checkpoint in (folder / "checkpoint-3", folder / "checkpoint-6"):
        assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "model.safetensors").values())


# Beside the training.


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
    code = "import sys, trainwiz.core.training.__main__; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_numbers_that_json_does_not_have() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5, 3, None, torch.tensor(2.0)]
    assert [json_number(value) for value in values] == ["NaN", "Infinity", "-Infinity", 1.5, 3, None, 2.0]


def test_an_attempt_without_a_checkpoint_takes_the_lines_before_it_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    metrics = MetricsCallback(run, StepMeter(), Accelerator(cpu=True))
    metrics.begin(None)
    assert not run.metrics_jsonl.exists()
    run.metrics_jsonl.write_text('{"time_s": 1.0, "step": 3, "loss": 2.0}\n')
    metrics.begin(None)
    last = json.loads(run.metrics_jsonl.read_text().splitlines()[-1])
    assert last["resumed_from"] == 0 and "step" not in last


def test_tokens_a_second_are_those_of_all_steps_since_the_line_before(tmp_path: Path) -> None:
    meter = StepMeter()
    for _ in range(2):
        list(meter.timed(iter([{"input_ids": torch.ones(2, 5), "labels": torch.ones(2, 5)}])))
        meter.step_done()
    line = MetricsCallback(RunFolder(tmp_path), meter, Accelerator(cpu=True))._training_line({"loss": 1.0})
    assert line["tokens_per_s"] * line["step_s"] * 2 == pytest.approx(20) == line["tokens"]


def test_a_reporter_that_fails_is_said_once_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    args = TrainingArguments(output_dir=str(tmp_path), report_to=["tensorboard"], use_cpu=True)
    reporter: Any = take_reporters(args)[0]
    given = (args, TrainerState(max_steps=9, is_world_process_zero=True), TrainerControl())
    reporter.on_train_begin(*given, model=None)
    for loss in (3.0, 2.0):
        reporter.on_log(*given, logs={"loss": loss})
    reporter.on_train_end(*given)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith("tensorboard failed and is disabled: ")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("WANDB_MODE", "")
    monkeypatch.delenv("WANDB_MODE")
    take_reporters(args)
    assert os.environ["WANDB_MODE"] == "offline"
