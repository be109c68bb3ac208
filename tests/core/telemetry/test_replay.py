"""A replay shows a run as it was: its rows and state, never what was still to come."""

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.run_source import ReplaySource, parse_speed
from trainwiz.core.telemetry.target import Target, open_source

from tests.core.telemetry.written_run import write_json, write_lines

BEGIN_S = 1_795_000_000.0
SECOND_S = BEGIN_S + 86_400
END_S = SECOND_S + 121.0
STEPS = 20


def rows(first: int, last: int, begin_s: float) -> list[dict[str, Any]]:
    """A logged step every ten seconds."""
    return [
        {"time_s": begin_s + 10.0 * (step - first + 1), "step": step, "loss": 3.0 - step / 10, "step_s": 10.0}
        for step in range(first, last + 1)
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Stopped after 10 steps, resumed a day later from step 8, finished after 20; ended one second after its last step."""
    run = RunFolder(tmp_path)
    first = {"number": 1, "started_s": BEGIN_S, "ended_s": BEGIN_S + 105, "status": "stopped"}
    second = {"number": 2, "started_s": SECOND_S, "ended_s": END_S, "status": "finished"}
    state = {
        "status": "finished", "max_steps": STEPS, "started_s": BEGIN_S, "ended_s": END_S, "attempts": [first, second],
        "engine": {"planned": "single", "actual": "single", "device": "cpu"}, "exit": {"code": 0, "message": "Finished."},
    }  # fmt: skip
    write_json(run.state_json, state)
    run.run_yaml.write_text("name: run\n")
    resumed = {"time_s": SECOND_S + 5, "resumed_from": 8}
    write_lines(run.metrics_jsonl, [*rows(1, 10, BEGIN_S), resumed, *rows(9, STEPS, SECOND_S)])
    machine = [{"time_s": BEGIN_S + n, "host": {"cpu_percent": float(n)}, "processes": []} for n in range(105)]
    write_lines(run.system_jsonl, machine)
    run.train_log.write_text("loading\nfinished at step 20\n")
    return run


def replay(run: RunFolder, speed: float = 1.0) -> tuple[ReplaySource, list[float]]:
    """With the seconds that the test lets pass."""
    clock = [0.0]
    return ReplaySource(run, speed, clock=lambda: clock[0]), clock


def test_nothing_of_the_future_is_shown(run: RunFolder) -> None:
    told = [{"time_s": BEGIN_S + 50, "code": "early", "text": "Early."}]
    write_lines(run.file("advice.jsonl"), told)
    source, clock = replay(run)
    for seconds in range(0, 105, 3):
        clock[0] = float(seconds)
        snapshot, step = source.read_all(("loss",)), seconds // 10
        assert snapshot.replayed_s == snapshot.time_s == BEGIN_S + seconds
        assert (snapshot.step, snapshot.status) == (step or None, "running" if step else "starting")
        assert snapshot.ending is None and snapshot.ended_s is None and snapshot.log_path is None
        assert snapshot.log == () and "once it has reached the end" in snapshot.unavailable["log"]
        assert snapshot.host.cpu_percent == float(seconds)
        assert ("early" in {advice.code for advice in snapshot.advice}) is (seconds >= 50)


def test_the_day_between_two_attempts_is_left_out(run: RunFolder) -> None:
    source, clock = replay(run)
    clock[0] = 104.0
    assert source.read_all().step == 10
    clock[0] = 107.0
    between = source.read_all()
    assert (between.step, between.status, between.replayed_s) == (10, "starting", BEGIN_S + 86_402)
    clock[0] = 111.0
    # The resumed run takes back what lay after its checkpoint.
    assert source.read_all().metrics["loss"].count == 8
    clock[0] = 116.0
    again = source.read_all()
    assert (again.step, again.status, again.metrics["loss"].count) == (9, "running", 9)


def test_the_end_is_as_the_run_says(run: RunFolder) -> None:
    source, clock = replay(run, speed=60.0)
    clock[0] = 3.0
    assert source.read_all().status == "running"
    clock[0] = 1000.0
    ended, live = source.read_all(), open_source(Target.of_run(run)).read_all()
    assert (ended.status, ended.replay_speed) == ("finished", 0.0)
    for name in ("metrics", "ending", "log", "log_path"):
        assert getattr(ended, name) == getattr(live, name)
    assert ended.actions == {"plan", "command"}


def test_speeds() -> None:
    assert [parse_speed(text) for text in ("60x", "0.5X", "1e3")] == [60.0, 0.5, 1000.0]
