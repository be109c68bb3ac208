"""What the watchers see in a run and not in a healthy one; the watch in its thread, over a real recorder and the fake driver."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import EXIT_TRAINING_FAILED, Finding, TrainwizError
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.attempts import Advice, AdviceFile, Phase, write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunState, write_state
from trainwiz.core.supervise import watch as watch_module
from trainwiz.core.supervise.recorder import Recorder
from trainwiz.core.supervise.watch import QUIET_S, SAY_AGAIN_S, AdviceLog, Watch
from trainwiz.core.telemetry.run_source import RunSource
from trainwiz.core.training.process import write_failure

from tests.core.supervise.conftest import system_lines
from tests.core.supervise.conftest import until as wait_for
from tests.each import each
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml

HOT = 0x40
"""nvmlClocksEventReasonHwThermalSlowdown."""


@pytest.fixture
def state(run: RunFolder) -> RunState:
    state = RunState(name="run", status="running", engine={"actual": "single", "device": "cuda:0", "workers": 2})
    state.attempts = [Attempt(1, time.time() - 1.0)]
    return state


@pytest.fixture
def watch(run: RunFolder, state: RunState) -> Watch:
    return Watch(run, state, 0.2)


@pytest.fixture
def watching(run: RunFolder, watch: Watch, driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    driver.write([FakeGpu(), FakeGpu()])
    monkeypatch.setitem(watch_module.WATCHED_AFTER_S, "heat", 0.3)  # type: ignore[arg-type]
    monkeypatch.setitem(watch_module.WATCHED_AFTER_S, "gpu_lost", 0.3)  # type: ignore[arg-type]
    recorder = Recorder(run, 0.2, watch.take_sample)
    recorder.start()
    yield driver
    recorder.stop()
    watch.end()
    assert watch.problem is None


def rows(run: RunFolder) -> list[dict[str, Any]]:
    path = run.file("advice.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_lost_and_a_hot_card_are_shown_once_till_the_end(
    run: RunFolder, state: RunState, watch: Watch, watching: FakeNvml
) -> None:
    def codes() -> set[str]:
        watch.look()
        return {row["code"] for row in rows(run)}

    wait_for(lambda: codes() == set() and len(system_lines(run)) >= 2)
    watching.write([FakeGpu(lost=True), FakeGpu(throttle=HOT)])
    wait_for(lambda: codes() == {"gpu_lost", "heat"})
    watch.look()
    lost, hot = sorted(rows(run), key=lambda row: str(row["code"]))
    assert lost["severity"] == "error" and lost["text"].startswith("GPU 0 cannot be read: the GPU is lost")
    assert hot["severity"] == "warning" and hot["text"].startswith("GPU 1 throttled by heat.")
    state.heartbeat_s = time.time()
    state.supervisor = None
    write_state(run, state)
    snapshot = RunSource(run).poll()
    assert [item.code for item in snapshot.advice].count("heat") == 1
    state.status, state.ended_s = "finished", time.time()
    write_state(run, state)
    assert [item for item in RunSource(run).poll().advice if item.code == "heat"] == []


def test_the_end_takes_back_what_was_of_a_moment(run: RunFolder, state: RunState) -> None:
    clock = [state.attempts[0].started_s + 1.0]
    watch = Watch(run, state, 1.0, clock=lambda: clock[0])
    write_phase(run, "training", since_s=clock[0])
    for step in range(1, 11):
        clock[0] += 2.0
        with run.metrics_jsonl.open("a") as file:
            file.write(json.dumps({"time_s": clock[0], "step": step, "loss": "NaN" if step > 8 else 2.0}) + "\n")
        watch.look()
    for _ in range(60):
        clock[0] += 5.0
        watch.look()
    assert [row["code"] for row in rows(run)] == ["nan_loss", "stalled"]
    watch.end()
    assert (rows(run)[-1]["code"], rows(run)[-1]["severity"]) == ("stalled", "cleared")


def test_each_attempt_has_a_pace_of_its_own(run: RunFolder, state: RunState) -> None:
    began_s = now_s = time.time()
    watch = Watch(run, state, 1.0, clock=lambda: now_s)
    run.metrics_jsonl.write_text(json.dumps({"time_s": now_s, "step": 3, "loss": "NaN", "step_s": 1.0}) + "\n")
    watch.look()
    assert [line["code"] for line in rows(run)] == ["nan_loss"]
    state.attempts.append(Attempt(2, began_s + 1.0))
    now_s += 2 * QUIET_S
    watch.look()
    assert [line["severity"] for line in rows(run)][1:] == ["cleared"]


# The watchers, each with a clock turned by hand.


LOOK_S = 5.0


class SeenRun:
    """`step` and `rest` move the clock, write what a training and a recorder would, and look every LOOK_S."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = RunFolder(folder)
        self.now_s = 1_700_000_000.0
        engine = {"workers": 2, "cpu_cores": 32, "max_steps": 100_000}
        self.state = RunState(status="running", engine=engine, attempts=[Attempt(1, self.now_s)])
        self.steps, self.look_s = 0, LOOK_S
        self.watch = Watch(self.folder, self.state, 1.0, clock=lambda: self.now_s)
        self.found: list[Advice] = []
        self.ever: set[str] = set()
        sizes = {"ram_used_bytes": 10 * GIB, "ram_total_bytes": 64 * GIB, "disk_free_bytes": 900 * GIB}
        self.host: dict[str, Any] = sizes
        self.sampled = True

    def phase(self, phase: Phase) -> None:
        write_phase(self.folder, phase, self.steps, since_s=self.now_s)

    def steps_of(self, step_s: float, count: int, **values: Any) -> None:
        for _ in range(count):
            self.rest(step_s)
            self.steps += 1
            row = {"time_s": self.now_s, "step": self.steps, "loss": 2.5, "step_s": step_s, "data_wait_s": step_s / 100}
            with self.folder.metrics_jsonl.open("a") as file:
                file.write(json.dumps({**row, **values}) + "\n")

    def rest(self, seconds: float) -> None:
        """Time passes; samples are taken and watchers look."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + self.look_s)
            self.look()

    def look(self) -> list[Advice]:
        if self.sampled:
            self.watch.take_sample({"time_s": self.now_s, "host": dict(self.host), "processes": []})
        self.found = self.watch.advice()
        self.ever |= self.codes
        return self.found

    @property
    def codes(self) -> set[str]:
        return {item.code for item in self.found}


def text_of(found: Iterable[Advice], code: str) -> str:
    return next(item.text for item in found if item.code == code)


@pytest.fixture
def seen(tmp_path: Path) -> SeenRun:
    """A run that trains."""
    seen = SeenRun(tmp_path)
    seen.phase("training")
    return seen


def test_a_healthy_run_of_hours_has_no_advice(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.look_s = 30.0
    for phase in ("preparing", "loading", "tokenising", "compiling"):
        seen.phase(phase)
        seen.host["ram_used_bytes"] += 5 * GIB
        seen.rest(400)
    for turn in range(8):
        seen.phase("training")
        seen.steps_of(12.0 + turn % 3, 40)
        seen.phase("evaluating")
        seen.host["ram_used_bytes"] += GIB * (1 if turn % 2 else -1)
        seen.rest(300)
        seen.phase("saving")
        seen.rest(90)
    assert seen.ever == set()


def test_a_run_that_stands_still_stalls_by_its_own_pace(seen: SeenRun) -> None:
    seen.steps_of(10.0, 10)
    seen.rest(120)
    assert "stalled" not in seen.ever
    seen.rest(30)
    assert text_of(seen.found, "stalled") == "No step was logged for 2 min; usually there is one every 10 s."
    seen.steps_of(1.0, 1)
    assert seen.look() == []


@each("phase", ["tokenising", "evaluating", "paused"])
def test_work_without_steps_is_no_stall(tmp_path: Path, phase: Phase) -> None:
    seen = SeenRun(tmp_path)
    # What an earlier attempt was at is not this one's.
    write_phase(seen.folder, "evaluating", 7, since_s=seen.now_s - 1.0)
    seen.steps_of(2.0, 30)
    seen.rest(200)
    assert seen.codes == {"stalled"}
    seen.ever.clear()
    seen.phase("training")
    seen.steps_of(2.0, 30)
    seen.phase(phase)
    seen.look_s = 55.0
    seen.rest(7_200)
    seen.phase("training")
    seen.rest(100)
    assert seen.ever == set()


@each("jump_s", [30_000, -60_000])
def test_a_machine_that_slept_has_not_stalled(tmp_path: Path, jump_s: float) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 30)
    seen.now_s += jump_s
    seen.look()
    seen.rest(100)
    assert seen.ever == set()


def test_a_training_that_its_guard_has_stopped_says_so_too(seen: SeenRun, tmp_path: Path) -> None:
    """The bad loss itself was never logged."""
    seen.steps_of(2.0, 5)
    said = "The loss is NaN or infinite at step 6. The last good one is checkpoint-5."
    # As core.training.callbacks.NonFiniteLoss, whose module takes ten seconds to import.
    write_failure(tmp_path, TrainwizError(Finding("nan_loss", "error", "training", said), EXIT_TRAINING_FAILED))
    (advice,) = seen.look()
    assert (advice.code, advice.level) == ("nan_loss", "error") and "checkpoint-5" in advice.text
    write_failure(tmp_path, ValueError("another"))
    assert seen.look() == []


def test_a_leak_is_foretold_and_the_growth_of_a_start_is_none(tmp_path: Path) -> None:
    """A start loads for minutes; loader workers and buffers fill up over the first two minutes of steps."""
    seen = SeenRun(tmp_path)
    seen.phase("loading")
    for _ in range(80):
        seen.rest(5)
        seen.host["ram_used_bytes"] += GIB // 4
    seen.phase("training")
    for step in range(200):
        seen.steps_of(5.0, 1)
        seen.host["ram_used_bytes"] += GIB // 4 if step < 24 else GIB // 1_000 * (1 if step % 2 else -1)
    assert seen.ever == set()
    (tmp_path / "leaks").mkdir()
    leaks = SeenRun(tmp_path / "leaks")
    leaks.phase("training")
    for _ in range(80):
        leaks.steps_of(5.0, 1)
        leaks.host["ram_used_bytes"] += GIB // 20
    assert " min at the rate of the last 5 min." in text_of(leaks.found, "ram_short")


def test_sensors_that_hang_are_told_from_a_quiet_run(seen: SeenRun) -> None:
    seen.steps_of(2.0, 10)
    seen.sampled = False
    seen.steps_of(2.0, 30)
    assert seen.codes == set(), "65 s may pass"
    seen.steps_of(2.0, 10)
    assert seen.codes == {"sensors_silent"}


def test_a_starved_run_names_the_workers_after_enough_steps(seen: SeenRun) -> None:
    seen.steps_of(10.0, 2, data_wait_s=6.0)
    assert seen.ever == set(), "the first steps warm up"
    seen.steps_of(10.0, 6, data_wait_s=6.0)
    assert seen.found[0].remedy == "6 instead of 2 loader workers would help: --set data.workers=6"


def test_a_disk_that_does_not_last_is_foretold(seen: SeenRun, tmp_path: Path) -> None:
    seen.state.engine = {"save_every_steps": 50, "checkpoints_kept": 4, "max_steps": 1_000}
    seen.steps_of(2.0, 60)
    weights = tmp_path / "checkpoint-50" / "model.safetensors"
    weights.parent.mkdir()
    with weights.open("wb") as file:
        file.truncate(10 * GIB)
    seen.watch._sizes._clock = lambda: weights.stat().st_mtime + 3_600
    seen.host["disk_free_bytes"] = 25 * GIB
    seen.watch._sizes._look.next_s = 0.0
    seen.steps_of(2.0, 60)
    assert "still need 40.0 GiB" in text_of(seen.found, "disk_short")


# advice.jsonl


HEAT = Advice("heat", "warning", "GPU 0 throttled by heat.", "More air.")
STALLED = Advice("stalled", "warning", "No step was logged for 5 min.")


class Told:
    """A log with a clock that is turned by hand."""

    def __init__(self, folder: Path, **after_s: float) -> None:
        self.now_s = 1_700_000_000.0
        self.path = folder / "advice.jsonl"
        self.log = AdviceLog(folder, after_s, lambda: self.now_s)

    def look(self, *advice: Advice, for_s: float = LOOK_S) -> None:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.log.tell(advice)
            self.now_s += LOOK_S

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows(RunFolder(self.path.parent))

    @property
    def standing(self) -> list[Any]:
        return list(AdviceFile(JsonLinesTail(self.path)).read())


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_one_line_when_it_begins_and_one_when_it_is_over(told: Told) -> None:
    told.look(STALLED, for_s=300)
    assert [row["severity"] for row in told.rows] == ["warning"]
    told.look(for_s=QUIET_S - LOOK_S)
    assert len(told.rows) == 1
    told.look(for_s=2 * LOOK_S)
    assert [(row["code"], row["severity"]) for row in told.rows] == [("stalled", "warning"), ("stalled", "cleared")]
    assert told.standing == []
    for minute in range(30):
        told.look(Advice("stalled", "warning", f"No step was logged for {minute} min."), for_s=60)
    assert 4 <= len(told.rows) <= 3 + 1_800 / SAY_AGAIN_S, "figures are brought up to date now and then"
    told.look(Advice("stalled", "error", "It hangs."))
    assert told.rows[-1]["severity"] == "error", "worse is said at once"


def test_what_does_not_last_is_never_written(tmp_path: Path) -> None:
    told = Told(tmp_path, heat=60.0)
    for _ in range(20):
        told.look(HEAT, for_s=50)
        told.look(for_s=10)
    assert not told.path.exists()
    told.look(HEAT, for_s=70)
    assert [row["text"] for row in told.rows] == [HEAT.text]


def test_a_trouble_that_comes_and_goes_fills_no_disk(told: Told) -> None:
    for _ in range(200):
        told.look(HEAT, for_s=30)
        told.look(for_s=90)
    assert len(told.rows) < 12, "200 times in 7 hours"


def test_the_next_keeper_takes_back_what_a_killed_one_left(told: Told, tmp_path: Path) -> None:
    told.look(STALLED, HEAT)
    with told.path.open("a") as file:
        file.write('{"code": "mine", "where": "me", "severity": "note", "text": "of another"}\n{"code": "hal')
    told = Told(tmp_path)
    told.log.begin()
    told.look(HEAT, for_s=QUIET_S + 2 * LOOK_S)
    # A line after half a line is whole.
    assert {str(row["code"]) for row in told.standing} == {"heat", "mine"}
    assert not any('"mine"' in line and '"keeper"' in line for line in told.path.read_text().splitlines())
