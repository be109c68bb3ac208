"""Output folders of a Trainer: a real one that was stopped and resumed, with event files, with checkpoints
alone, with its log alone; and which of them is read when they disagree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Target, open_files_source

from tests.core.telemetry.event_writers import BEGAN_S, write_points
from tests.core.telemetry.test_trainer_state import checkpoint, state

TRAIN = """
import sys, time, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

class StopAt(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 60 and self.stops

def train(stops, resume):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16))
    rows = [{"input_ids": torch.randint(0, 50, (8,)), "labels": torch.tensor(i % 2)} for i in range(160)]
    args = TrainingArguments("out", max_steps=100, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        logging_steps=5, save_steps=25, eval_strategy="steps", eval_steps=25, report_to="tensorboard", use_cpu=True,
        logging_nan_inf_filter=False)
    callback = StopAt()
    callback.stops = stops
    Trainer(model, args, train_dataset=rows, eval_dataset=rows[:16], callbacks=[callback]).train(
        resume_from_checkpoint=resume)

train(True, None)
time.sleep(1.1)  # the folder of events is named by the second
train(False, "out/checkpoint-50")
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """out/: 60 of 100 steps, then resumed from step 50 to the end; train.log: its standard output and error."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(TRAIN)
    # Threads that wait for each other cost minutes on a busy machine.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "train.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "train.py"], cwd=folder, stdout=log, stderr=log, check=True, timeout=300, env=environment
        )
    return folder


def look(path: Path, now_s: float | None = None, curves: tuple[str, ...] = ()) -> Snapshot:
    source = open_files_source(
        Target("trainer", path, path.name), clock=lambda: time.time() if now_s is None else now_s
    )
    return source.read_all(curves)


def logged(path: Path) -> dict[str, tuple[int, int, float]]:
    """Name -> (count, last step, last value) by plain JSON."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in json.loads(path.read_text())["log_history"]:
        for name, value in row.items():
            if name not in ("step", "epoch"):
                points.setdefault(name, []).append((row["step"], value))
    return {name: (len(found), *found[-1]) for name, found in points.items()}


def shown(snapshot: Snapshot, names: Mapping[str, object]) -> dict[str, tuple[int, float | None, object]]:
    return {
        name: (summary.count, summary.last_step, pytest.approx(summary.last, rel=1e-3))
        for name, summary in snapshot.metrics.items()
        if name in names
    }


@pytest.mark.real
def test_a_real_training_that_was_resumed_is_one_series(trained: Path) -> None:
    expected = logged(trained / "out" / "checkpoint-100" / "trainer_state.json")
    snapshot = look(trained / "out", curves=("loss",))
    assert expected["loss"][:2] == (20, 100)
    assert shown(snapshot, expected) == expected
    assert list(snapshot.curve("loss").steps) == list(range(5, 101, 5))
    assert (snapshot.status, snapshot.step, snapshot.max_steps, snapshot.epoch) == ("finished", 100, 100, 5.0)
    assert snapshot.planned.effective_samples == 8
    assert snapshot.pace.wall_step_s is not None
    assert snapshot.hyperparameters["gradient_accumulation_steps"] == "2"
    assert "token" not in " ".join(snapshot.hyperparameters)
    assert all("tfevents" in path for path in snapshot.read_from)
    assert snapshot.problems == ()


@pytest.mark.real
def test_without_event_files_the_newest_checkpoint_is_read(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained / "out", out)
    shutil.rmtree(out / "runs")
    expected = logged(out / "checkpoint-100" / "trainer_state.json")
    snapshot = look(out)
    assert shown(snapshot, expected) == expected
    assert (snapshot.status, snapshot.step) == ("finished", 100)
    assert snapshot.read_from == (str(out / "checkpoint-100" / "trainer_state.json"),)


@pytest.mark.real
def test_the_log_alone_has_the_same_steps(trained: Path) -> None:
    expected = logged(trained / "out" / "checkpoint-100" / "trainer_state.json")
    snapshot = look(trained / "train.log", curves=("loss",))
    assert (snapshot.step, snapshot.max_steps, snapshot.status) == (100, 100, "finished")
    assert list(snapshot.curve("loss").steps) == list(range(5, 101, 5))
    assert snapshot.metrics["eval_loss"].last_step == 100
    assert snapshot.metrics["loss"].last == pytest.approx(expected["loss"][2], rel=1e-3)
    assert snapshot.log
    assert snapshot.log_path == str(trained / "train.log")


def test_events_that_reach_further_than_the_checkpoint_are_read(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20)
    write_points(tmp_path / "runs" / "a", {"train/loss": [(step, 1.0) for step in range(1, 31)]})
    snapshot = look(tmp_path, now_s=BEGAN_S + 40)
    assert (snapshot.step, snapshot.max_steps, snapshot.status) == (30, 100, "running")
    assert snapshot.eta_s == pytest.approx(70.0)


def test_a_later_evaluation_by_a_process_of_its_own_leaves_the_course_alone(tmp_path: Path) -> None:
    write_points(tmp_path / "runs" / "a", {"train/loss": [(10, 2.0), (20, 1.0)], "eval/loss": [(20, 1.5)]})
    time.sleep(1.1)
    write_points(tmp_path / "runs" / "b", {"eval/loss": [(0, 9.0)]})
    snapshot = look(tmp_path)
    assert snapshot.step == 20
    assert (snapshot.metrics["eval_loss"].count, snapshot.metrics["eval_loss"].last) == (1, 1.5)


def test_a_training_that_began_anew_forgets_the_old_one(tmp_path: Path) -> None:
    write_points(tmp_path / "runs" / "a", {"train/loss": [(step, 9.0) for step in range(10, 110, 10)]})
    time.sleep(1.1)
    write_points(tmp_path / "runs" / "b", {"train/loss": [(10, 1.0), (20, 0.5)]}, later_s=1e3)
    snapshot = look(tmp_path)
    assert (snapshot.step, snapshot.metrics["loss"].count, snapshot.metrics["loss"].maximum) == (20, 2, 1.0)


def test_a_checkpoint_that_comes_while_it_is_watched_is_growth(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20)
    source = open_files_source(Target("trainer", tmp_path, "out"))
    assert source.read_all().status == "quiet"
    checkpoint(tmp_path, 30)
    snapshot = source.read_all()
    assert (snapshot.status, snapshot.step) == ("running", 30)


def test_the_steps_of_a_job_that_counts_epochs_are_estimated_from_them(tmp_path: Path) -> None:
    points = {"train/loss": [(100, 1.0)], "train/epoch": [(100, 0.5)]}
    file = write_points(tmp_path / "runs" / "a", points)
    assert look(tmp_path).max_steps is None
    with_arguments(file, {"max_steps": -1, "num_train_epochs": 3.0, "hub_token": "hf_secret"})
    snapshot = look(tmp_path)
    assert snapshot.max_steps == 600
    assert "hf_secret" not in json.dumps(snapshot.to_json())


def with_arguments(file: Path, arguments: Mapping[str, object]) -> None:
    """Add what the Trainer's TensorBoard callback writes at the start: its arguments as a text."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.record_writer import RecordWriter

    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype="DT_STRING", string_val=[json.dumps(arguments).encode()])
    value = Summary.Value(tag="args/text_summary", metadata=metadata, tensor=tensor)
    with file.open("ab") as stream:
        RecordWriter(stream).write(Event(wall_time=BEGAN_S, summary=Summary(value=[value])).SerializeToString())


def test_a_job_that_stopped_early_says_so_itself(tmp_path: Path) -> None:
    rows = [{"step": 10, "loss": 1.0}, {"step": 12, "train_runtime": 60.0, "train_loss": 1.0}]
    (tmp_path / "trainer_state.json").write_text(state(12, rows))
    snapshot = look(tmp_path)
    assert (snapshot.status, snapshot.step, snapshot.max_steps) == ("finished", 12, 100)
    assert snapshot.pace.wall_step_s == 5.0


def test_a_folder_that_goes_away_while_it_is_watched_keeps_its_figures(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_points(folder / "runs" / "a", {"train/loss": [(1, 1.0)]})
    source = open_files_source(Target("trainer", folder, "out"))
    source.read_all()
    shutil.rmtree(folder)
    assert source.read_all().metrics["loss"].count == 1


def test_an_evaluation_that_comes_before_the_first_training_point_is_kept(tmp_path: Path) -> None:
    """The Trainer writes the values of an evaluation before the epoch that it logs with them."""
    evaluations: dict[str, list[tuple[int, float]]] = {"eval/loss": [(7, 2.0)], "train/epoch": [(7, 0.1)]}
    write_points(tmp_path / "runs" / "a", evaluations)
    assert look(tmp_path).metrics["eval_loss"].count == 1
    time.sleep(1.1)
    write_points(tmp_path / "runs" / "b", {"eval/loss": [(0, 3.0)], "train/loss": [(0, 1.0), (5, 0.5)]}, later_s=1e3)
    anew = look(tmp_path)
    assert (anew.step, anew.metrics["eval_loss"].count, anew.metrics["eval_loss"].last) == (5, 1, 3.0)


def test_a_checkpoint_left_by_a_training_before_is_not_what_trains_now(tmp_path: Path) -> None:
    left = checkpoint(tmp_path, 50)
    os.utime(left, (BEGAN_S - 60, BEGAN_S - 60))
    write_points(tmp_path / "runs" / "b", {"train/loss": [(step, 1.0) for step in range(1, 31)]})
    now = look(tmp_path, now_s=BEGAN_S + 40)
    assert (now.step, now.metrics["loss"].count, now.status) == (30, 30, "running")


@pytest.mark.parametrize("live", [False, True])
def test_two_trainings_in_one_folder_keep_their_own_figures(tmp_path: Path, live: bool) -> None:
    """They log in turns: shown is the one that began last, alone, and the other by its command."""
    older = {"train/loss": [(step, 9.0) for step in range(5, 105, 5)]}
    newer = {"train/loss": [(step, 1.0) for step in range(10, 60, 10)]}
    out = tmp_path / "a folder"
    source = open_files_source(Target("trainer", out, "out"), clock=lambda: BEGAN_S + 1000)
    whole = write_points(out / "runs" / "a", older).read_bytes()
    (file,) = (out / "runs" / "a").iterdir()
    if live:
        file.write_bytes(whole[: len(whole) // 3])
        source.read_all()
    time.sleep(1.1)
    write_points(out / "runs" / "b", newer, later_s=20.0)
    if live:
        source._reader._events._next_look = 0.0  # type: ignore[attr-defined]
        source.read_all()
        file.write_bytes(whole)
    snapshot = source.read_all(("loss",))
    assert list(snapshot.curve("loss").steps) == [10, 20, 30, 40, 50]
    assert set(snapshot.curve("loss").values) == {1.0}
    assert any(f"trainwiz monitor '{out / 'runs' / 'a'}'" in advice.text for advice in snapshot.advice)


def test_a_resumed_training_took_the_time_of_its_last_session(tmp_path: Path) -> None:
    write_points(tmp_path / "runs" / "a", {"train/loss": [(step, 2.0) for step in range(10, 60, 10)]})
    time.sleep(1.1)
    write_points(tmp_path / "runs" / "b", {"train/loss": [(step, 1.0) for step in range(50, 90, 10)]}, later_s=50_000.0)
    snapshot = look(tmp_path, BEGAN_S + 90_000)
    assert (snapshot.metrics["loss"].count, snapshot.pace.wall_step_s) == (8, 1.0)
    assert any(advice.text.startswith("2 launches wrote here") for advice in snapshot.advice)
    names = sorted(file.name for file in tmp_path.rglob("*tfevents*"))
    assert snapshot.started_s is not None
    assert int(snapshot.started_s) == int(names[-1].split(".")[3])
