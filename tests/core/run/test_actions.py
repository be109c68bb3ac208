"""Actions on a run: what is possible in each state, what a stop costs, which commands there are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import get_args

import pytest
from trainwiz.core.launch import actions
from trainwiz.core.launch.actions import stop_cost
from trainwiz.core.launch.prepare import prepare_run
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
    assert actions.why_not("stop", snapshot("finished")) == "Nothing to stop: the run is finished."
    assert "launch.sh" in actions.why_not("resume", snapshot("prepared"))


def run_with_checkpoints(tmp_path: Path, world_size: int) -> RunFolder:
    document = plan(1, 742.0, 500_000)
    document["batch"]["world_size"] = world_size
    write_json(tmp_path / "plan.json", document)
    run = RunFolder(tmp_path)
    write_state(run, RunState(status="running", grace_s=2400.0, engine={"world_size": world_size}))
    write_checkpoint(tmp_path, 60)
    write_checkpoint(tmp_path, 80)
    cut(write_checkpoint(tmp_path, 90) / "optimizer.pt")
    return run


def test_a_single_process_drops_the_step_that_is_under_way_and_several_finish_it(tmp_path: Path) -> None:
    nothing = stop_cost(RunFolder(tmp_path), snapshot(step=None, step_s=None))
    assert (nothing.wait_s, nothing.again_s, nothing.checkpoint, nothing.lost_steps, nothing.lost_s) == (None,) * 5
    (tmp_path / "two").mkdir()
    cost = stop_cost(run_with_checkpoints(tmp_path / "two", 2), snapshot())
    assert (cost.wait_s, cost.again_s) == (742.0, 0.0)
    cost = stop_cost(run_with_checkpoints(tmp_path, 1), snapshot())
    assert cost.wait_s == pytest.approx(742.0 / 651)
    assert cost.again_s == 742.0
    assert (cost.checkpoint, cost.lost_steps, cost.patience_s) == ("checkpoint-80", 20, 2400.0)
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
