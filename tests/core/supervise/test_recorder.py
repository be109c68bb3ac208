"""The recorder over the fake driver: what it writes, what it remembers, what it costs, and drivers that hang."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise import recorder as recorder_module
from trainwiz.core.supervise.recorder import SHARE_OF_A_CORE, Recorder, SampleFile

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / "run"
    folder.mkdir()
    return RunFolder(folder)


def rows(run: RunFolder) -> list[dict[str, Any]]:
    text = run.system_jsonl.read_text() if run.system_jsonl.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def record(run: RunFolder, until: Callable[[], bool], every_s: float = 0.05) -> Recorder:
    """A recorder that ran until `until` held."""
    one = Recorder(run, every_s)
    one.start()
    deadline = time.monotonic() + 20
    while not until():
        assert time.monotonic() < deadline, one.problem
        time.sleep(0.02)
    one.stop()
    return one


def test_a_line_holds_the_whole_machine(driver: FakeNvml, run: RunFolder) -> None:
    driver.write([FakeGpu(utilization=5), FakeGpu(lost=True)])
    record(run, lambda: len(rows(run)) >= 2)
    first, second = rows(run)[:2]
    assert set(second) == {"time_s", "gpus", "host", "processes", "unavailable"}
    assert [gpu["utilization_percent"] for gpu in second["gpus"]] == [5, None]
    assert second["host"]["ram_used_bytes"] > 0 and second["processes"][0]["rss_bytes"] > 0
    assert "so_far" in first, "whoever enters the file at this attempt knows the earlier ones"


def test_the_next_attempt_remembers_the_peak_of_the_first(driver: FakeNvml, run: RunFolder) -> None:
    driver.write([FakeGpu(memory_used=9 * GIB)])
    record(run, lambda: len(rows(run)) >= 2)
    seen = len(rows(run))
    driver.write([FakeGpu(memory_used=GIB)])
    record(run, lambda: len(rows(run)) > seen)
    (peak,) = rows(run)[seen]["so_far"]["peak_gpu_bytes"].values()
    assert peak == 9 * GIB


def test_a_driver_that_hangs_delays_no_stop(driver: FakeNvml, run: RunFolder) -> None:
    driver.write([FakeGpu()], delay_s=0.5)
    one = Recorder(run, 0.05)
    one.start()
    time.sleep(0.3)
    started_s = time.monotonic()
    one.stop()
    assert time.monotonic() - started_s < 3
    driver.write([FakeGpu()])
    for thread in threading.enumerate():
        if thread.name == "recorder":
            thread.join(timeout=10)


def test_a_folder_that_is_gone_is_one_line_in_the_log(
    driver: FakeNvml, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(recorder_module, "log", said.append)
    gone = RunFolder(run.path / "gone")
    one = record(gone, lambda: bool(said))
    assert one.problem is not None and "FileNotFoundError" in one.problem
    assert len(said) == 1
    gone.path.mkdir()
    again = record(gone, lambda: len(rows(gone)) >= 2)
    assert again.problem is None


def test_the_same_problem_is_said_once(driver: FakeNvml, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tries: list[float] = []
    monkeypatch.setattr(recorder_module, "log", said.append)

    def full(self: Any, row: Any) -> None:
        tries.append(row["time_s"])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder_module.SampleFile, "append", full)
    record(run, lambda: len(tries) >= 3)
    assert len(said) == 1 and "No space left" in said[0]


@pytest.mark.all
def test_the_dearer_a_sample_the_longer_the_interval(
    driver: FakeNvml, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At shorter intervals the recorder waits longer by itself: its lines are then as far apart as that share asks."""
    driver.write([FakeGpu(processes={1: GIB}) for _ in range(8)])
    spent_s: list[float] = []
    plain_try = Recorder._try

    def timed_try(step: Callable[[], object]) -> str | None:
        started_s = time.thread_time()
        problem = plain_try(step)
        spent_s.append(time.thread_time() - started_s)
        return problem

    monkeypatch.setattr(Recorder, "_try", staticmethod(timed_try))
    # A try to remember comes first; then each sample is followed by a try to thin.
    record(run, lambda: len(rows(run)) >= 7)
    samples_s = spent_s[1::2][1:]
    times = [row["time_s"] for row in rows(run)][1:7]
    assert times[-1] - times[0] >= 0.9 * sum(samples_s[:5]) / SHARE_OF_A_CORE, "the interval grew with the cost"


def test_a_file_that_was_thinned_says_at_once_what_was_so_far(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer enters the file near its end: without it, it would not know the peaks of what was left out."""
    monkeypatch.setattr(recorder_module, "SO_FAR_EVERY_BYTES", 4_000)
    monkeypatch.setattr(
        recorder_module,
        "SampleFile",
        lambda path: SampleFile(path, most_bytes=20_000, newest_bytes=3_000, older_bytes=3_000),
    )
    one = Recorder(run, 1.0)
    thinned = 0
    for second in range(2_000):
        before = run.system_jsonl.stat().st_size if second else 0
        one._write({"time_s": float(second), "processes": [{"pid": 1, "role": "trainer", "rss_bytes": 9_000 - second}]})
        one._thin()
        if run.system_jsonl.stat().st_size < before:
            thinned += 1
            one._write({"time_s": second + 0.5, "processes": []})
            assert rows(run)[-1]["so_far"]["peak_trainer_rss_bytes"] == 9_000
    assert thinned > 3
