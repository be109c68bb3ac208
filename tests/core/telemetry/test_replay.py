"""A replay shows a run as it was: its rows, log and state, never what was still to come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.replay import ReplayClock, ReplaySource, parse_speed
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Target, open_source

from tests.core.telemetry.written_run import write_json, write_lines
from tests.each import each

BEGIN_S = 1_795_000_000.0
STEPS = 20
MARK = "=== trainwiz: attempt {}, 2026-11-18 00:26:40, starts from the beginning ==="


class Clock:
    """Seconds that the test lets pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def attempt(number: int, started_s: float, ended_s: float | None, status: str) -> dict[str, object]:
    return {"number": number, "started_s": started_s, "ended_s": ended_s, "status": status}


def rows(first: int, last: int, begin_s: float) -> list[dict[str, object]]:
    """A logged step every ten seconds."""
    return [
        {"time_s": begin_s + 10.0 * (step - first + 1), "step": step, "loss": 3.0 - step / 10, "step_s": 10.0}
        for step in range(first, last + 1)
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Stopped after 10 steps, resumed a day later from step 8, finished after 20; ended one second after its last step."""
    second_s = BEGIN_S + 86_400
    end_s = second_s + 10.0 * 12 + 1
    write_json(
        tmp_path / "state.json",
        {
            "status": "finished",
            "max_steps": STEPS,
            "started_s": BEGIN_S,
            "ended_s": end_s,
            "attempts": [
                attempt(1, BEGIN_S, BEGIN_S + 105, "stopped"),
                attempt(2, second_s, end_s, "finished"),
            ],
            "engine": {"planned": "single", "actual": "single", "device": "cpu"},
            "exit": {"code": 0, "message": "Finished."},
            "outcome": {"step": STEPS},
        },
    )
    (tmp_path / "run.yaml").write_text("name: run\n")
    resumed: dict[str, object] = {"time_s": second_s + 5, "resumed_from": 8}
    write_lines(tmp_path / "metrics.jsonl", [*rows(1, 10, BEGIN_S), resumed, *rows(9, STEPS, second_s)])
    machine = [{"time_s": BEGIN_S + n, "host": {"cpu_percent": float(n)}, "processes": []} for n in range(105)]
    write_lines(tmp_path / "system.jsonl", machine)
    log = [MARK.format(1), "loading"]
    log += [f"step {step}/{STEPS}  loss {3.0 - step / 10}" for step in range(1, 11)]
    log += ["checkpoint-8 is kept", MARK.format(2)]
    log += [f"step {step}/{STEPS}  loss {3.0 - step / 10}" for step in range(9, STEPS + 1)]
    log += ["finished at step 20"]
    (tmp_path / "train.log").write_text("\n".join(log))
    return RunFolder(tmp_path)


def replay(run: RunFolder, speed: float = 1.0) -> tuple[ReplaySource, Clock]:
    clock = Clock()
    return ReplaySource(run, speed, clock=clock), clock


def texts(snapshot: Snapshot) -> list[str]:
    return [line.text for line in snapshot.log]


def test_nothing_of_the_future_is_shown(run: RunFolder) -> None:
    source, clock = replay(run)
    for seconds in range(0, 105, 3):
        clock.now_s = float(seconds)
        snapshot = source.read_all(("loss",))
        step = seconds // 10
        assert snapshot.replayed_s == snapshot.time_s == BEGIN_S + seconds
        assert snapshot.step == (step or None)
        assert snapshot.status == ("running" if step else "starting")
        assert snapshot.ending is None and snapshot.ended_s is None and snapshot.log_path is None
        assert [text for text in texts(snapshot) if text.startswith("step")][-1:] == (
            [f"step {step}/{STEPS}  loss {3.0 - step / 10}"] if step else []
        )
        assert ("loading" in texts(snapshot)) == (step >= 1)
        assert "checkpoint-8 is kept" not in texts(snapshot)
        assert snapshot.host.cpu_percent == float(seconds)
        assert snapshot.engine.get("actual") == ("single" if step else None)


def test_the_day_between_two_attempts_is_left_out(run: RunFolder) -> None:
    source, clock = replay(run)
    clock.now_s = 104.0
    assert source.read_all().step == 10
    clock.now_s = 107.0
    between = source.read_all()
    assert (between.step, between.status) == (10, "starting")
    assert between.replayed_s == BEGIN_S + 86_402
    assert MARK.format(2) in texts(between)
    clock.now_s = 111.0
    # The resumed run takes back what lay after its checkpoint.
    assert source.read_all().metrics["loss"].count == 8
    clock.now_s = 116.0
    again = source.read_all()
    assert (again.step, again.status, again.metrics["loss"].count) == (9, "running", 9)


def test_the_night_after_a_lost_attempt_is_left_out(run: RunFolder) -> None:
    state = json.loads(run.state_json.read_text())
    state["attempts"][0].update(ended_s=None, status="lost")
    write_json(run.state_json, state)
    source, clock = replay(run)
    clock.now_s = 103.9
    assert source.read_all().replayed_s == BEGIN_S + 103.9
    clock.now_s = 106.0
    assert source.read_all().replayed_s == BEGIN_S + 86_402


def test_the_end_is_as_the_run_says(run: RunFolder) -> None:
    source, clock = replay(run, speed=60.0)
    clock.now_s = 3.0
    assert source.read_all().status == "running"
    clock.now_s = 1000.0
    ended, live = source.read_all(), open_source(Target.of_run(run)).read_all()
    assert ended.status == "finished" and ended.replay_speed == 0.0
    assert ended.metrics == live.metrics
    assert ended.ending == live.ending
    assert texts(ended) == texts(live)
    assert ended.log_path == live.log_path
    assert ended.actions == {"plan", "command"}


def test_many_rows_are_read_in_pieces(run: RunFolder) -> None:
    long = [{"time_s": BEGIN_S + n / 1000, "step": n, "loss": 1.0, "text": "x" * 100} for n in range(20_000)]
    write_lines(run.metrics_jsonl, long)
    source, clock = replay(run)
    clock.now_s = 10.0
    assert source.read_all().step == 10_000
    clock.now_s = 1e6
    assert source.read_all().step == 19_999


@pytest.mark.parametrize("broken", ['{"time_s": null, "step": 1}', "garbage", ""])
def test_a_run_without_times_is_refused(tmp_path: Path, broken: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(broken + "\n")
    write_json(tmp_path / "state.json", {"status": "finished"})
    with pytest.raises(UsageError, match="carry a time"):
        ReplaySource(RunFolder(tmp_path), 60.0)


def test_a_run_that_goes_on_is_refused(run: RunFolder) -> None:
    state = json.loads(run.state_json.read_text())
    write_json(run.state_json, {**state, "status": "running", "heartbeat_s": 9e9})
    with pytest.raises(UsageError, match="without --replay"):
        ReplaySource(run, 60.0)


@pytest.mark.parametrize(("text", "speed"), [("60", 60.0), ("60x", 60.0), ("0.5X", 0.5), ("1e3", 1000.0)])
def test_speeds(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@each("text", ["0", "-1", "nan", "inf", "fast", "", "x", "1e30"])
def test_wrong_speeds_are_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--replay takes a speed"):
        parse_speed(text)


def test_the_clock_stops_at_the_end() -> None:
    clock = Clock()
    played = ReplayClock([(10.0, 20.0), (100.0, 105.0)], 2.0, clock)
    moments = []
    for clock.now_s in (0.0, 4.0, 5.0, 6.0, 7.5, 100.0):
        moments.append(played.moment())
    assert moments == [10.0, 18.0, 100.0, 102.0, 105.0, 105.0]
    assert played.over


def test_what_watchers_said_later_is_not_shown(run: RunFolder) -> None:
    lines = [
        {"time_s": BEGIN_S + 50, "code": "early", "text": "Early."},
        {"time_s": BEGIN_S + 90, "code": "late", "text": "Late."},
    ]
    write_lines(run.file("advice.jsonl"), [dict(line) for line in lines])
    state = json.loads(run.state_json.read_text())
    write_json(run.state_json, {**state, "advice": [{"code": "final", "text": "At the end."}]})
    clock = Clock()
    source = ReplaySource(run, 1.0, clock=clock)
    seen = []
    for now_s in (10.0, 60.0, 95.0, 1e6):
        clock.now_s = now_s
        seen.append({advice.code for advice in source.read_all().advice} & {"early", "late", "final"})
    assert seen == [set(), {"early"}, {"early", "late"}, {"early", "late", "final"}]


def test_a_run_that_was_asked_to_stop_is_stopping_from_then_on(run: RunFolder) -> None:
    state = json.loads(run.state_json.read_text())
    state.update(status="stopped", stop={"requested_s": BEGIN_S + 86_400 + 90})
    write_json(run.state_json, state)
    source, clock = replay(run)
    for seconds, status in ((60.0, "running"), (105 + 89.0, "running"), (105 + 91.0, "stopping"), (1e6, "stopped")):
        clock.now_s = seconds
        assert source.read_all().status == status, seconds
