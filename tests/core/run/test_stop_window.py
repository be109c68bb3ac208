"""The window of a graceful stop: measured steps and saves, the engine, what recovery changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from trainwiz.core.launch.actions import FLOOR_S, StopWindow, StopWindowReader, window_of
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder

PLANNED = StopWindow(500.0, "step", 100.0, 100.0, 30.0, "planned")
STEP_S = 38 * 60.0


def run_of(folder: Path, *, accumulation: int = 651, world_size: int = 1) -> RunFolder:
    (folder / "plan.json").write_text(json.dumps({"batch": {"accumulation": accumulation, "world_size": world_size}}))
    return RunFolder(folder)


def log(run: RunFolder, *rows: dict[str, object]) -> None:
    with run.metrics_jsonl.open("a") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def save(run: RunFolder, step: int, *, began_s: float, seconds: float | None) -> None:
    """A checkpoint as the training leaves it; `seconds` None: the save was cut off."""
    folder = run.path / f"checkpoint-{step}"
    folder.mkdir()
    for name, time_s in (
        ("progress.json", began_s),
        ("trainer_state.json", None if seconds is None else began_s + seconds),
    ):
        if time_s is not None:
            (folder / name).write_text("{}")
            os.utime(folder / name, (time_s, time_s))


def test_several_processes_finish_a_step_of_38_minutes(tmp_path: Path) -> None:
    run = run_of(tmp_path, world_size=2)
    log(run, {"step": 1, "loss": 3.0, "step_s": STEP_S}, {"step": 2, "loss": 2.9, "step_s": 2000.0})
    save(run, 1, began_s=100.0, seconds=500.0)
    save(run, 2, began_s=1000.0, seconds=20.0)
    save(run, 3, began_s=2000.0, seconds=None)
    window = StopWindowReader(run).read(2, PLANNED)
    assert window == StopWindow(FLOOR_S + 1.25 * STEP_S + 2 * 20.0, "step", STEP_S, STEP_S, 20.0, "measured")


def test_a_single_process_waits_for_one_micro_batch(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    log(run, {"step": 1, "step_s": STEP_S})
    window = StopWindowReader(run).read(1, PLANNED)
    assert (window.work, window.work_s, window.step_s) == ("micro_step", pytest.approx(STEP_S / 651), STEP_S)
    # The save was not measured yet: the planned one.
    assert window.window_s == pytest.approx(FLOOR_S + 1.25 * STEP_S / 651 + 2 * 30.0)


def test_it_follows_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path, accumulation=8)
    reader = StopWindowReader(run)
    # Before a step was measured the plan holds.
    log(run, {"step": 0, "eval_loss": 3.0}, {"step": 1, "step_s": None}, {"step": 1, "step_s": "NaN"})
    assert reader.read(None, PLANNED) is PLANNED and reader.read(1, None) is None
    log(run, {"step": 1, "step_s": 80.0})
    first = reader.read(1, PLANNED)
    assert first.work_s == 10.0
    log(run, *({"step": step, "step_s": 8.0} for step in range(2, 22)))
    later = reader.read(1, first)
    # The long first step is no recent one any more.
    assert later.work_s == 1.0
    # Another attempt accumulates twice as often, and nothing of it is measured yet.
    write_recoveries(run, [Recovery(2, "cuda_oom", 21, 0.0, {"batch.gradient_accumulation_steps": 16})])
    log(run, {"time_s": 0.0, "resumed_from": 21})
    assert reader.read(1, later) is later
    log(run, {"step": 22, "step_s": 8.0})
    again = reader.read(1, later)
    assert again.work_s == 0.5


def test_the_document_reads_back_and_garbage_does_not() -> None:
    window = window_of(10.0, 3.0, accumulation=5, processes=1, measured=True)
    assert StopWindow.from_json(json.loads(json.dumps(window.to_json()))) == window
    for garbage in (None, [], {}, {"window_s": "long"}, {"window_s": -1}, {"window_s": True}):
        assert StopWindow.from_json(garbage) is None
