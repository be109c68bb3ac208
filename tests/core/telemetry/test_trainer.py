"""What a Trainer leaves: trainer_state.json, and logs of its standard output; when such a job runs, is quiet, has finished."""

import json
import math
import multiprocessing
import os
import runpy
import shutil
import time
import warnings
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainwiz.core.telemetry.metrics import NO_PACE, Series, wall_step_s
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import NOTHING, FilesSource, Reading, Target, open_files_source, status_of
from trainwiz.core.telemetry.trainer_files import (
    NewestState,
    TrainerLog,
    TrainerState,
    parse_arguments,
    planned_steps,
    read_trainer_state,
)

from tests.core.telemetry.event_writers import BEGAN_S, write_points
from tests.core.telemetry.written_run import NOW_S
from tests.each import each

Rows = list[dict[str, Any]]


def state(step: int, rows: Rows | None = None) -> str:
    history = [{"step": n, "loss": 1.0 / n, "epoch": n / 10} for n in range(1, step + 1)] if rows is None else rows
    return json.dumps({"global_step": step, "max_steps": 100, "epoch": step / 10, "log_history": history})


def checkpoint(folder: Path, step: int, text: str | None = None, at_s: float | None = None) -> Path:
    path = folder / f"checkpoint-{step}" / "trainer_state.json"
    path.parent.mkdir(parents=True)
    path.write_text(state(step) if text is None else text)
    if at_s is not None:
        os.utime(path, (at_s, at_s))
    return path


def written(folder: Path, text: str, name: str = "trainer_state.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read(folder: Path, text: str) -> TrainerState:
    found = read_trainer_state(written(folder, text))
    assert isinstance(found, TrainerState)
    return found


def look(path: Path, now_s: float | None = None) -> Snapshot:
    clock = time.time if now_s is None else lambda: now_s
    return open_files_source(Target("trainer", path, path.name), clock=clock).read_all(("loss",))


def test_bare_nan_text_numbers_too_large_and_odd_rows(tmp_path: Path) -> None:
    text = (
        '{"global_step": 4, "best_model_checkpoint": "C:\\\\out\\\\checkpoint-4", "log_history": ['
        '{"step": 1, "loss": NaN}, {"step": 2, "loss": "NaN"}, {"step": 3, "loss": "-0.5"}, '
        '{"step": 4, "loss": -Infinity, "note": "text", "flag": true, "huge": 1' + "0" * 400 + "}]}"
    )
    tags = read(tmp_path, text).scalars.series
    assert set(tags) == {"loss", "huge"}
    loss = tags["loss"]
    assert (loss.count, loss.last, loss.non_finite_steps, list(loss.curve().sums)) == (4, -math.inf, (1, 2, 4), [-0.5])
    assert (tags["huge"].last_step, tags["huge"].last) == (4, math.inf)
    odd: Any = [{"loss": 1.0}, None, 7, {"step": "x", "loss": 2.0}, {"step": 3, "loss": None}]
    assert list(read(tmp_path, state(3, odd)).scalars.series["loss"].curve().sums) == [1.0, 2.0]


def test_the_newest_readable_state_counts_and_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    checkpoint(tmp_path / "broken", 20)
    broken = checkpoint(tmp_path / "broken", 30, state(30)[:100])
    newest = NewestState(tmp_path / "broken")
    assert (found := newest.look()) is not None and found.step == 20
    assert len(newest.problems) == 1 and str(broken) in newest.problems[0]
    broken.write_text(state(30))
    assert (found := newest.look()) is not None and (found.step, newest.problems) == (30, ())
    os.mkfifo(tmp_path / "trainer_state.json")
    assert "not a regular file" in str(read_trainer_state(tmp_path / "trainer_state.json"))


def test_of_two_trainings_the_state_that_was_written_last_counts(tmp_path: Path) -> None:
    checkpoint(tmp_path / "two", 50, at_s=1_000)
    checkpoint(tmp_path / "two", 10, state(10, [{"step": 10, "loss": math.nan, "epoch": 0.5}]), at_s=2_000)
    assert look(tmp_path / "two").step == 10
    # A copy in any order is still one training.
    checkpoint(tmp_path / "copy", 50, at_s=1_000)
    checkpoint(tmp_path / "copy", 10, at_s=2_000)
    assert look(tmp_path / "copy").step == 50


def test_a_job_that_stopped_early_says_so_itself_and_a_new_checkpoint_is_growth(tmp_path: Path) -> None:
    # Tokens are counted: the runtime stands beside each loss.
    first = {"step": 10, "loss": 1.0, "num_input_tokens_seen": 900, "train_runtime": 50.0}
    checkpoint(tmp_path / "goes on", 10, state(10, [first]))
    assert look(tmp_path / "goes on").status == "quiet"
    written(tmp_path, state(12, [first, {"step": 12, "train_runtime": 60.0, "train_samples_per_second": 9.0}]))
    snapshot = look(tmp_path)
    assert (snapshot.status, snapshot.step, snapshot.max_steps) == ("finished", 12, 100)
    checkpoint(tmp_path / "grows", 20)
    source = open_files_source(Target("trainer", tmp_path / "grows", "out"))
    assert source.read_all().status == "quiet"
    checkpoint(tmp_path / "grows", 30)
    snapshot = source.read_all()
    assert (snapshot.status, snapshot.step) == ("running", 30)


def test_the_steps_of_all_epochs_are_told_by_one_of_them() -> None:
    for step, epoch, steps in ((50, 0.5, 300), (310, 3.2, 310), (0, 0.0, None), (50, None, None)):
        assert planned_steps({"num_train_epochs": 3.0}, step, epoch) == steps
    assert planned_steps({"num_train_epochs": 3.0, "max_steps": 7}, 50, 0.5) == 7
    assert (
        parse_arguments('{"max_steps": -1}') == {"max_steps": -1} and parse_arguments("[") == parse_arguments("3") == {}
    )


def log(folder: Path, text: str) -> TrainerLog:
    return TrainerLog(written(folder, text, "train.log"))


def points(metrics: TrainerLog) -> list[tuple[str, int, float]]:
    return [(name, step, value) for name, step, value, _ in metrics.read_new()]


def bar(at: int, total: int = 200, rate: str = "2.0s/it", seconds: int = 10) -> str:
    return f"\r  {at * 100 // total}%|███       | {at}/{total} [00:{seconds:02}<00:90,  {rate}]"


def test_numbers_and_strings_are_values(tmp_path: Path) -> None:
    text = (
        "{'loss': 1.5, 'learning_rate': 4.9e-06, 'epoch': 0.1, 'step': 10}\n"
        "{'loss': '-2.5', 'grad_norm': 'nan', 'epoch': '0.2', 'step': 20}\n"
        "{'loss': nan, 'grad_norm': inf, 'epoch': 0.3, 'step': 30}\n"
        '{"loss": 1e3, "epoch": 0.4, "step": 40}\n'
    )
    found = points(log(tmp_path, text))
    assert found[:3] == [("loss", 10, 1.5), ("learning_rate", 10, 4.9e-06), ("loss", 20, -2.5)]
    assert math.isnan(found[3][2]) and math.isnan(found[4][2])
    assert found[5:] == [("grad_norm", 30, math.inf), ("loss", 40, 1000.0)]


def test_the_bar_after_a_dict_is_its_step(tmp_path: Path) -> None:
    text = "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9.9it/s]\n"
    for at in (10, 20):
        # The bar before a dict may lag behind: tqdm draws it ten times a second at most.
        text += bar(at - 3) + "\r          \r{'loss': '1.0', 'epoch': '0.1'}\n" + bar(at)
    text += "\r 50%|█████     | 1/2 [00:00<00:00, 9.0it/s]\r      \r{'eval_loss': '0.9', 'epoch': '0.2'}\n"
    metrics = log(tmp_path, text + bar(20, rate="4.0it/s") + "\n")
    assert [found[:2] for found in points(metrics)] == [("loss", 10), ("loss", 20), ("eval_loss", 20)]
    assert (metrics.step, metrics.max_steps, metrics.counted) == (20, 200, False)
    # The bar of an evaluation is no step of the training.
    text = bar(2) + bar(20) + "\r{'loss': '1.0', 'epoch': '0.1'}\n"
    text += bar(90, 99) + "\r{'eval_loss': '0.9', 'epoch': '0.1'}\n"
    assert [found[:2] for found in points(log(tmp_path, text))] == [("loss", 20), ("eval_loss", 20)]


def test_the_clock_of_the_bar_is_the_pace_of_its_launch(tmp_path: Path) -> None:
    def rows(*places: tuple[int, int]) -> str:
        return "".join(f"\r{{'loss': '1.0', 'epoch': '0.1'}}\n{bar(at, seconds=s)}" for at, s in places)

    first, again = rows((10, 20), (20, 40)), rows((150, 5), (160, 20))
    for text, pace in ((first, 2.0), (first + again, 1.5)):
        metrics = log(tmp_path, text)
        metrics.read_new()
        assert wall_step_s(metrics.scalars.series["loss"].recent) == pace


def test_without_a_bar_the_count_tells_and_numbers_that_are_none_end_nothing(tmp_path: Path) -> None:
    text = "{'loss': 3.0, 'epoch': 0.1}\n{'loss': 2.0, 'epoch': 0.2}\n{'eval_loss': 1.0, 'epoch': 0.2}\n"
    metrics = log(tmp_path, text)
    assert [step for _, step, _ in points(metrics)] == [1, 2, 2]
    assert metrics.counted and metrics.step is None
    for words in (f"{'9' * 5000}/{'9' * 5000} [00:01<00:01, 1.00it/s]", "5/100 [00:01<00:01, ...it/s]"):
        found = points(log(tmp_path, f"\n  5%|5    | {words}\n{{'loss': 0.5, 'epoch': 1.0}}\n"))
        assert [value for name, _, value in found if name == "loss"] == [0.5]


def test_a_dict_that_is_half_written_waits_and_a_log_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    metrics, found = log(tmp_path, ""), []
    with (tmp_path / "train.log").open("a") as file:
        for character in "[rank0]: {'loss': 1.25, 'epoch': 0.5, 'step': 7}\n" * 3:
            file.write(character)
            file.flush()
            found += points(metrics)
    assert found == [("loss", 7, 1.25)] * 3
    written(tmp_path, "{'loss': 2.0, 'epoch': 0.1, 'step': 5}\n", "train.log")
    assert points(metrics) == [("loss", 5, 2.0)]
    assert (metrics.rows, metrics.step) == (1, 5)


def said(*readings: Reading) -> FilesSource:
    """A job whose files say what the test says, look by look."""
    left = list(readings)
    read = lambda deadline: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
    return FilesSource(Target("tensorboard", Path("/job"), "job"), read, clock=lambda: NOW_S)


@each(("shown", "pause_s", "silent_s", "status"), [
    # Ten pauses without a word are quiet; the last step is the end.
    ({}, None, 121.0, "quiet"), ({}, 60.0, 600.0, "running"), ({}, 60.0, 601.0, "quiet"),
    ({"step": 99, "max_steps": 100}, None, 0.0, "running"), ({"step": 100, "max_steps": 100}, None, 0.0, "finished"),
    ({"step": 100, "max_steps": None}, None, 0.0, "running"),
])  # fmt: skip
def test_a_status_that_no_job_says(shown: dict[str, Any], pause_s: float | None, silent_s: float, status: str) -> None:
    loss = Series()
    loss.recent.extend([] if pause_s is None else [(1.0, 0.0, 1.0), (2.0, pause_s, 1.0)])
    reading = Reading(replace(NOTHING, **shown), {"loss": loss}, loss)
    assert status_of(reading, NOW_S, NOW_S - silent_s) == status


def test_what_the_first_looks_find_was_there_before_and_the_time_left_is_that_of_the_wall_clock() -> None:
    there, then = Reading(replace(NOTHING, behind=True), grew=True), Reading(grew=True)
    source = said(there, there, then, then)
    assert [source.poll().status for _ in range(4)] == ["quiet", "quiet", "quiet", "running"]
    pace = replace(NO_PACE, step_s=2.0, wall_step_s=3.0)
    shown = replace(NOTHING, step=90, max_steps=100, pace=pace, written_s=NOW_S)
    assert said(Reading(shown)).poll().eta_s == 30.0
    assert said(Reading(replace(shown, max_steps=None))).poll().eta_s is None


# Output folders of a Trainer: a real one that was stopped and resumed, with event files, with checkpoints.

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
    args = TrainingArguments("out", max_steps=20, per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
        logging_steps=1, save_steps=10, eval_strategy="steps", eval_steps=10, report_to="tensorboard")
    callback = StopAt()
    callback.stops = stops
    Trainer(model, args, train_dataset=rows, eval_dataset=rows[:16], callbacks=[callback]).train(
        resume_from_checkpoint=resume)

train(True, None)
time.sleep(1.1)  # the folder of events is named by the second
train(False, "out/checkpoint-10")
"""
Points = list[tuple[int, float]]


def write(folder: Path, run: str, loss: Points, evaluation: Points = [], later_s: float = 0.0) -> Path:  # noqa: B006
    """The events of one launch: those of run b were begun a few seconds after those of a."""
    points = {tag: values for tag, values in {"train/loss": loss, "eval/loss": evaluation}.items() if values}
    return write_points(folder / "runs" / run, points, later_s=later_s, after_s=9 if run == "b" else 0)


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
    found = [(name, snapshot.metrics[name]) for name in names]
    return {name: [one.count, one.last_step, pytest.approx(one.last, rel=1e-3)] for name, one in found}


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
    # The server of all trainings of the tests (core/training/runs.py) has the libraries: loading them takes seconds.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.core.training.forked"])
    process = server.Process(target=run_script, args=(tmp_path, log_path))
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
    assert snapshot.pace.wall_step_s is not None and snapshot.problems == ()
    assert all("tfevents" in path for path in snapshot.read_from)
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
    for step, at_s, left_s in ((20, None, 70.0), (50, BEGAN_S - 60, None)):
        checkpoint(tmp_path / str(step), step, at_s=at_s)
        write(tmp_path / str(step), "a", every(range(1, 31), 1.0))
        snapshot = look(tmp_path / str(step), now_s=BEGAN_S + 40)
        assert (snapshot.step, snapshot.metrics["loss"].count, snapshot.status) == (30, 30, "running")
        assert snapshot.eta_s == (None if left_s is None else pytest.approx(left_s))


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
    write_points(first / "runs" / "b", {"eval/loss": [(5, 3.0)], "train/loss": [(5, 0.5)]}, later_s=1e3, after_s=9)
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
    began_s = EventAccumulator(str(resumed / "runs" / "b")).Reload().FirstEventTimestamp()
    assert snapshot.started_s == pytest.approx(began_s, abs=1e-5)
