"""Actions on a run: what is possible in each state, what a stop costs and how long it is waited for, and the commands."""

import json
import os
import shlex
from pathlib import Path
from typing import get_args

import pytest
from trainwiz.core.launch import actions
from trainwiz.core.launch.actions import FLOOR_S, StopWindow, read_window, stop_cost, window_of
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, write_state
from trainwiz.core.telemetry.metrics import Pace
from trainwiz.core.telemetry.snapshot import Action, Snapshot

from tests.core.launch.plans import small_plan
from tests.core.run.checkpoint_files import cut, write_checkpoint
from tests.core.telemetry.written_run import plan, write_json
from tests.each import each


def snapshot(
    status: str = "running", *, step: int | None = 100, step_s: float | None = 742.0, **more: object
) -> Snapshot:
    given: dict[str, object] = {"source": "run", "path": "run", "name": "run", "time_s": 0.0, **more}
    pace = Pace(step_s, None if step_s is None else step_s * 1.1, None, None, None)
    return Snapshot(status=status, step=step, pace=pace, **given)  # type: ignore[arg-type]


@each("action", get_args(Action))
def test_what_is_not_possible_says_why(action: Action) -> None:
    foreign = snapshot("running", source="trainer")
    assert "not started by trainwiz" in actions.why_not(action, foreign)
    replayed = snapshot("running", replayed_s=5.0)
    assert "replay" in actions.why_not(action, replayed)
    able = snapshot("running", actions=frozenset(get_args(Action)))
    assert actions.why_not(action, able) == ""
    reason = actions.why_not(action, able, readonly=True)
    assert ("read-only" in reason) == (action not in ("plan", "command"))
    assert actions.why_not("stop", snapshot("finished")) == "Not possible now: the run is finished."
    assert "launch.sh" in actions.why_not("resume", snapshot("prepared"))


def run_with_checkpoints(tmp_path: Path, world_size: int) -> RunFolder:
    document = plan(1, 742.0, 500_000)
    document["batch"]["world_size"] = world_size
    write_json(tmp_path / "plan.json", document)
    run = RunFolder(tmp_path)
    planned = window_of(742.0, None, accumulation=651, processes=world_size, measured=False).to_json()
    engine = {"world_size": world_size}
    write_state(run, RunState(status="running", grace_s=2400.0, window=planned, engine=engine))
    write_checkpoint(tmp_path, 60)
    write_checkpoint(tmp_path, 80)
    cut(write_checkpoint(tmp_path, 90) / "optimizer.pt")
    return run


def test_a_single_process_drops_the_step_that_is_under_way_and_several_finish_it(tmp_path: Path) -> None:
    nothing = stop_cost(RunFolder(tmp_path), snapshot(step=None, step_s=None))
    assert (nothing.wait_s, nothing.checkpoint, nothing.lost_steps, nothing.lost_s) == (None,) * 4
    (tmp_path / "two").mkdir()
    cost = stop_cost(run_with_checkpoints(tmp_path / "two", 2), snapshot())
    assert cost.wait_s == 742.0
    cost = stop_cost(run_with_checkpoints(tmp_path, 1), snapshot())
    assert cost.wait_s == pytest.approx(742.0 / 651)
    assert (cost.checkpoint, cost.lost_steps) == ("checkpoint-80", 20)
    assert cost.lost_s == pytest.approx(20 * 742.0 * 1.1)


def test_where_a_resumed_run_goes_on(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert "from the beginning" in actions.resume_start(run)
    write_checkpoint(tmp_path, 60)
    cut(write_checkpoint(tmp_path, 90) / "optimizer.pt")
    sentence = actions.resume_start(run)
    assert "checkpoint-60 (step 60)" in sentence and "checkpoint-90 is incomplete" in sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-60", "checkpoint-90"]


def test_the_commands_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = prepare_run(small_plan(name="demo"), tmp_path / "a folder")
    commands = actions.commands_of(run, frozenset({"resume"}))
    assert shlex.split(commands["start the training manually"]) == ["bash", str(tmp_path / "a folder" / "launch.sh")]
    assert "accelerate launch --config_file accelerate.yaml" in commands["the command this runs"]
    assert commands["resume it"] == f"trainwiz runs resume '{tmp_path}/a folder'"
    assert "stop it" not in commands
    assert "stop it" in actions.commands_of(run, frozenset({"stop"}))
    several = prepare_run(small_plan(name="two", engine__nodes=2, engine__strategy="ddp"), tmp_path / "two")
    told = actions.commands_of(several, frozenset())["the commands for each machine"]
    assert told == f"trainwiz export {tmp_path}/two --script"


# The window of a stop: measured steps and saves, what recovery changed.


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
    window = read_window(run, 2, PLANNED)
    assert window == StopWindow(FLOOR_S + 1.25 * STEP_S + 2 * 20.0, "step", STEP_S, STEP_S, 20.0, "measured")


def test_it_follows_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path, accumulation=8)
    # Before a step was measured the plan holds.
    log(run, {"step": 0, "eval_loss": 3.0}, {"step": 1, "step_s": None}, {"step": 1, "step_s": "NaN"})
    assert read_window(run, None, PLANNED) is PLANNED and read_window(run, 1, None) is None
    log(run, {"step": 1, "step_s": 80.0})
    first = read_window(run, 1, PLANNED)
    assert first.work_s == 10.0
    log(run, *({"step": step, "step_s": 8.0} for step in range(2, 22)))
    later = read_window(run, 1, first)
    # The long first step is no recent one any more.
    assert later.work_s == 1.0
    # Another attempt accumulates twice as often, and nothing of it is measured yet.
    write_recoveries(run, [Recovery(2, "cuda_oom", 21, 0.0, {"batch.gradient_accumulation_steps": 16})])
    log(run, {"time_s": 0.0, "resumed_from": 21})
    assert read_window(run, 1, later) is later
    log(run, {"step": 22, "step_s": 8.0})
    again = read_window(run, 1, later)
    assert again.work_s == 0.5


def test_the_document_reads_back_and_garbage_does_not() -> None:
    window = window_of(10.0, 3.0, accumulation=5, processes=1, measured=True)
    assert StopWindow.from_json(json.loads(json.dumps(window.to_json()))) == window
    for garbage in (None, [], {}, {"window_s": "long"}, {"window_s": -1}):
        assert StopWindow.from_json(garbage) is None
