"""Output folders of a Trainer: a real one that was stopped and resumed, with event files, with checkpoints
alone, with its log alone; and which of them is read when they disagree."""

import json
import multiprocessing
import os
import runpy
import shutil
import time
import warnings
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Target, open_files_source

from tests.core.telemetry.event_writers import BEGAN_S, write_points
from tests.core.telemetry.test_trainer import checkpoint

TRAIN = """
import sys, time, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

class StopAt(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 12 and self.stops

def train(stops, resume):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16))
    rows = [{"input_ids": torch.randint(0, 50, (8,)), "labels": torch.tensor(i % 2)} for i in range(160)]
    args = TrainingArguments("out", max_steps=20, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        logging_steps=1, save_steps=10, eval_strategy="steps", eval_steps=10, report_to="tensorboard", use_cpu=True,
        logging_nan_inf_filter=False)
    callback = StopAt()
    callback.stops = stops
    Trainer(model, args, train_dataset=rows, eval_dataset=rows[:16], callbacks=[callback]).train(
        resume_from_checkpoint=resume)

train(True, None)
time.sleep(1.1)  # the folder of events is named by the second
train(False, "out/checkpoint-10")
"""
Points = list[tuple[int, float]]


def look(path: Path, now_s: float | None = None) -> Snapshot:
    clock = time.time if now_s is None else lambda: now_s
    return open_files_source(Target("trainer", path, path.name), clock=clock).read_all(("loss",))


def write(folder: Path, run: str, loss: Points, evaluation: Points = [], **more: float) -> Path:  # noqa: B006
    """The events of one launch: those of run b were begun a few seconds after those of a."""
    points = {"train/loss": loss, "eval/loss": evaluation}
    return write_points(
        folder / "runs" / run,
        {tag: values for tag, values in points.items() if values},
        after_s=9 if run == "b" else 0,
        **more,
    )  # type: ignore[arg-type]


def every(steps: range, loss: float) -> Points:
    return [(step, loss) for step in steps]


def logged(path: Path) -> dict[str, list[Any]]:
    """Name -> count, last step and last value by plain JSON."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in json.loads(path.read_text())["log_history"]:
        for name in row.keys() - {"step", "epoch"}:
            points.setdefault(name, []).append((row["step"], row[name]))
    return {name: [len(found), *found[-1]] for name, found in points.items()}


def shown(snapshot: Snapshot, names: Iterable[str]) -> dict[str, list[Any]]:
    found = {name: snapshot.metrics[name] for name in names}
    return {name: [one.count, one.last_step, pytest.approx(one.last, rel=1e-3)] for name, one in found.items()}


def run_script(folder: Path, log_path: Path) -> None:
    os.chdir(folder)
    with log_path.open("w") as log, redirect_stdout(log), redirect_stderr(log), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path("train.py")


@pytest.mark.real
@pytest.mark.timeout(1200)
def test_a_real_training_that_was_resumed_is_one_series(tmp_path: Path) -> None:
    """12 of 20 steps, then resumed from step 10 to the end: by its events, by its checkpoint, by its log."""
    (tmp_path / "train.py").write_text(TRAIN)
    log_path = tmp_path / "train.log"
    import transformers

    # In a process of its own that has the libraries of this one: starting them takes seconds.
    assert transformers.Trainer and transformers.BertForSequenceClassification
    process = multiprocessing.get_context("fork").Process(target=run_script, args=(tmp_path, log_path))
    process.start()
    process.join(900)
    assert process.exitcode == 0, log_path.read_text()
    out, last_state = tmp_path / "out", tmp_path / "out" / "checkpoint-20" / "trainer_state.json"
    expected, steps = logged(last_state), list(range(1, 21))
    snapshot = look(out)
    assert expected["loss"][:2] == [20, 20]
    assert shown(snapshot, expected) == expected
    assert list(snapshot.curve("loss").steps) == steps
    assert (snapshot.status, snapshot.step, snapshot.max_steps, snapshot.epoch) == ("finished", 20, 20, 1.0)
    assert snapshot.pace.wall_step_s is not None
    assert snapshot.hyperparameters["gradient_accumulation_steps"] == "2"
    assert "token" not in " ".join(snapshot.hyperparameters)
    assert all("tfevents" in path for path in snapshot.read_from)
    assert snapshot.problems == ()
    # Its log alone has the same steps.
    snapshot = look(log_path)
    assert (snapshot.step, snapshot.max_steps, snapshot.status) == (20, 20, "finished")
    assert list(snapshot.curve("loss").steps) == steps
    assert snapshot.metrics["eval_loss"].last_step == 20
    assert snapshot.metrics["loss"].last == pytest.approx(expected["loss"][2], rel=1e-3)
    assert snapshot.log and snapshot.log_path == str(log_path)
    # Without event files the newest checkpoint is read.
    shutil.rmtree(out / "runs")
    log_path.unlink()
    snapshot = look(out)
    assert shown(snapshot, expected) == expected
    assert (snapshot.status, snapshot.step, snapshot.read_from) == ("finished", 20, (str(last_state),))


def test_events_that_reach_further_than_the_checkpoint_are_read_and_newer_than_one_left(tmp_path: Path) -> None:
    for name, step, at_s in (("further", 20, None), ("left by a training before", 50, BEGAN_S - 60)):
        checkpoint(tmp_path / name, step, at_s=at_s)
        write(tmp_path / name, "a", every(range(1, 31), 1.0))
        snapshot = look(tmp_path / name, now_s=BEGAN_S + 40)
        assert (snapshot.step, snapshot.metrics["loss"].count) == (30, 30)
        assert (snapshot.max_steps, snapshot.status) == (100 if at_s is None else snapshot.max_steps, "running")
        assert at_s is not None or snapshot.eta_s == pytest.approx(70.0)


def test_evaluations_of_other_processes_and_before_the_first_training_point(tmp_path: Path) -> None:
    later = tmp_path / "a process of its own"
    write(later, "a", [(10, 2.0), (20, 1.0)], [(20, 1.5)])
    write(later, "b", [], [(0, 9.0)])
    snapshot = look(later)
    assert snapshot.step == 20
    assert (snapshot.metrics["eval_loss"].count, snapshot.metrics["eval_loss"].last) == (1, 1.5)
    # The Trainer writes the values of an evaluation before the epoch that it logs with them.
    first = tmp_path / "first"
    write_points(first / "runs" / "a", {"eval/loss": [(7, 2.0)], "train/epoch": [(7, 0.1)]})
    assert look(first).metrics["eval_loss"].count == 1
    points = {"eval/loss": [(0, 3.0)], "train/loss": [(0, 1.0), (5, 0.5)]}
    write_points(first / "runs" / "b", points, later_s=1e3, after_s=9)
    anew = look(first)
    assert (anew.step, anew.metrics["eval_loss"].count, anew.metrics["eval_loss"].last) == (5, 1, 3.0)


def test_a_training_that_began_anew_forgets_the_old_one_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "anew", "a", every(range(10, 110, 10), 9.0))
    write(tmp_path / "anew", "b", [(10, 1.0), (20, 0.5)], later_s=1e3)
    snapshot = look(tmp_path / "anew")
    assert (snapshot.step, snapshot.metrics["loss"].count, snapshot.metrics["loss"].maximum) == (20, 2, 1.0)
    # It took the time of its last session.
    resumed = tmp_path / "resumed"
    write(resumed, "a", every(range(10, 60, 10), 2.0))
    write(resumed, "b", every(range(50, 90, 10), 1.0), later_s=50_000.0)
    snapshot = look(resumed, BEGAN_S + 90_000)
    assert (snapshot.metrics["loss"].count, snapshot.pace.wall_step_s) == (8, 1.0)
    assert any(advice.text.startswith("2 launches wrote these files") for advice in snapshot.advice)
    began_s = EventAccumulator(str(resumed / "runs" / "b")).Reload().FirstEventTimestamp()
    assert snapshot.started_s == pytest.approx(began_s, abs=1e-5)


def test_two_trainings_in_one_folder_keep_their_own_figures(tmp_path: Path) -> None:
    """They log in turns: shown is the one that began last, alone, and the other by its command."""
    out = tmp_path / "a folder"
    source = open_files_source(Target("trainer", out, "out"), clock=lambda: BEGAN_S + 1000)
    file = write(out, "a", every(range(5, 105, 5), 9.0))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 3])
    source.read_all()
    write(out, "b", every(range(10, 60, 10), 1.0), later_s=20.0)
    source._reader._events._next_look = 0.0  # type: ignore[attr-defined]
    source.read_all()
    file.write_bytes(whole)
    for snapshot in (source.read_all(("loss",)), look(out, BEGAN_S + 1000)):
        assert list(snapshot.curve("loss").steps) == [10, 20, 30, 40, 50]
        assert set(snapshot.curve("loss").values) == {1.0}
        assert any(f"trainwiz monitor '{out / 'runs' / 'a'}'" in advice.text for advice in snapshot.advice)
