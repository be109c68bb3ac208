"""The recorder over the fake driver, and its SampleFile: bounded for ever, whole where it is new, even where it is old."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise import recorder as recorder_module
from trainwiz.core.supervise.recorder import SHARE_OF_A_CORE, Recorder, SampleFile
from trainwiz.core.telemetry.machine import MachineHistory, Peaks

from tests.core.supervise.conftest import system_lines as rows
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml

KIB = 1024


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / "run"
    folder.mkdir()
    return RunFolder(folder)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(recorder_module, "log", lines.append)
    return lines


def record(run: RunFolder, until: Callable[[], bool]) -> Recorder:
    """A recorder that ran until `until` held."""
    one = Recorder(run, 0.05)
    one.start()
    deadline = time.monotonic() + 100
    while not until():
        assert time.monotonic() < deadline, one.problem
        time.sleep(0.02)
    one.stop()
    return one


def test_a_line_holds_the_whole_machine_and_the_next_attempt_remembers_the_peak(
    driver: FakeNvml, run: RunFolder
) -> None:
    driver.write([FakeGpu(utilization=5, memory_used=9 * GIB), FakeGpu(lost=True)])
    record(run, lambda: len(rows(run)) >= 2)
    first, second = rows(run)[:2]
    assert set(second) == {"time_s", "gpus", "host", "processes", "unavailable"}
    assert [gpu["utilization_percent"] for gpu in second["gpus"]] == [5, None]
    assert second["host"]["ram_used_bytes"] > 0 and second["processes"][0]["rss_bytes"] > 0
    assert "so_far" in first, "whoever enters the file at this attempt knows the earlier ones"
    seen = len(rows(run))
    driver.write([FakeGpu(memory_used=GIB)])
    record(run, lambda: len(rows(run)) > seen)
    assert 9 * GIB in rows(run)[seen]["so_far"]["peak_gpu_bytes"].values()


def test_a_driver_that_hangs_delays_no_stop(driver: FakeNvml, run: RunFolder) -> None:
    driver.write([FakeGpu()], delay_s=5.0)
    one = Recorder(run, 0.05)
    one.start()
    time.sleep(0.3)
    started_s = time.monotonic()
    one.stop()
    assert time.monotonic() - started_s < 4.5
    driver.write([FakeGpu()])
    for thread in threading.enumerate():
        if thread.name == "recorder":
            thread.join(timeout=600)


def test_a_folder_that_is_gone_is_one_line_in_the_log(driver: FakeNvml, run: RunFolder, said: list[str]) -> None:
    gone = RunFolder(run.path / "gone")
    one = record(gone, lambda: bool(said))
    assert one.problem is not None and "FileNotFoundError" in one.problem
    assert len(said) == 1
    gone.path.mkdir()
    assert record(gone, lambda: len(rows(gone)) >= 2).problem is None


def test_the_same_problem_is_said_once(
    driver: FakeNvml, run: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

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
    assert times[-1] - times[0] >= 0.9 * sum(samples_s[:5]) / SHARE_OF_A_CORE


def test_a_file_that_was_thinned_says_at_once_what_was_so_far(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer enters the file near its end: without it, it would not know the peaks of what was left out."""
    monkeypatch.setattr(recorder_module, "SO_FAR_EVERY_BYTES", 4_000)
    bounds = {"most_bytes": 20_000, "newest_bytes": 3_000, "older_bytes": 3_000}
    monkeypatch.setattr(recorder_module, "SampleFile", lambda path: SampleFile(path, **bounds))
    one = Recorder(run, 1.0)
    thinned = 0
    for second in range(1_000):
        before = run.system_jsonl.stat().st_size if second else 0
        one._write({"time_s": float(second), "processes": [{"pid": 1, "role": "trainer", "rss_bytes": 9_000 - second}]})
        one._thin()
        if run.system_jsonl.stat().st_size < before:
            thinned += 1
            one._write({"time_s": second + 0.5, "processes": []})
            assert rows(run)[-1]["so_far"]["peak_trainer_rss_bytes"] == 9_000
    assert thinned > 3


# SampleFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "system.jsonl"


def row(second: float, **more: Any) -> dict[str, Any]:
    return {"time_s": second, "gpus": [], "host": {"cpu_percent": 1.0}, "filler": "x" * 60, **more}


def small(path: Path) -> SampleFile:
    return SampleFile(path, most_bytes=60 * KIB, newest_bytes=20 * KIB, older_bytes=20 * KIB)


def times(path: Path) -> list[float]:
    return [json.loads(line)["time_s"] for line in path.read_text().splitlines()]


def fill(file: SampleFile, seconds: range) -> int:
    """Appends a row a second; how often the file was thinned."""
    thinned = 0
    for second in seconds:
        file.append(row(float(second)))
        thinned += file.thin()
    return thinned


def test_it_stays_below_its_bound_the_newest_are_whole_and_what_is_old_is_evenly_spread(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    file, largest, thinned = small(path), 0, 0
    for start in range(0, 20_000, 50):
        thinned += fill(file, range(start, start + 50))
        largest = max(largest, path.stat().st_size)
    assert largest <= 61 * KIB and thinned > 10
    kept = times(path)
    assert kept == sorted(kept) and kept[0] == 0
    assert kept[-150:] == [float(second) for second in range(19_850, 20_000)]
    spread = [gap for gap in (after - before for before, after in itertools.pairwise(kept)) if gap > 1]
    assert len(spread) > 30
    usual = statistics.median(spread)
    assert max(spread) <= 2 * usual, "no part of the past is much thinner than the rest"
    assert sum(gap < usual / 2 for gap in spread) < len(spread) / 5, "little of it is much denser"
    assert path.stat().st_mode & 0o777 == 0o640, "as readable as the one before"


def test_peaks_of_rows_that_are_gone_are_still_known(path: Path) -> None:
    """As the recorder writes it: `so_far` beside some rows."""
    file, so_far = small(path), Peaks()
    for second in range(3_000):
        one = row(float(second))
        one["gpus"] = [{"index": 0, "uuid": "GPU-a", "memory_used_bytes": 9_000 if second == 101 else 50}]
        one["processes"] = [{"pid": 7, "role": "trainer", "rss_bytes": 777 if second == 101 else 5}]
        one["host"]["disk_free_bytes"] = 1_000_000 - second * 10
        so_far.add(one)
        if second % 50 == 0:
            one["so_far"] = so_far.to_json()
        file.append(one)
        file.thin()
    assert 101 not in times(path)
    history = MachineHistory()
    history.add_rows(JsonLinesTail(path, window_bytes=15 * KIB).read_new())
    assert history.peak_memory_bytes(on_cpu=False) == 9_000
    assert history.peak_memory_bytes(on_cpu=True) == history.so_far.peak_job_rss_bytes == 777
    assert history.host().disk_span_s == pytest.approx(2_999, abs=60), "the disk was watched all the time"
    assert history.host().disk_lasts_s == pytest.approx((1_000_000 - 29_990) / 10, rel=0.01)


def test_half_a_line_of_a_killed_keeper_spoils_no_other(path: Path) -> None:
    path.write_text('{"time_s": 1.0}\n{"time_s": 2.0, "gp')
    SampleFile(path).append({"time_s": 3.0})
    tail = JsonLinesTail(path)
    assert [one["time_s"] for one in tail.read_new()] == [1.0, 3.0]
    assert tail.garbage_lines == 1


def test_lines_that_are_no_samples_do_not_stop_it(path: Path) -> None:
    path.write_bytes(b'\xff\xfe garbage\n[]\n{"time_s": "soon"}\n{"time_s": 1e999e}\n' + b"z" * 40 * KIB + b"\n")
    fill(small(path), range(100, 700))
    kept = times(path)
    assert kept[0] == 100.0 and kept[-1] == 699.0


def test_a_clock_that_was_set_back_costs_no_samples(path: Path) -> None:
    file = small(path)
    fill(file, range(10_000, 12_000))
    fill(file, range(500, 4_000))
    kept = times(path)
    assert max(kept) >= 11_000 and kept[-1] == 3_999
    # Older ones after the change are thinned, not gone.
    assert len([time_s for time_s in kept if 500 <= time_s < 3_500]) > 30
    assert path.stat().st_size <= 61 * KIB


def test_where_it_cannot_be_thinned_it_goes_on_and_tries_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = small(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        fill(file, range(2_000))
    tries = len(times(path))
    assert [entry.name for entry in path.parent.iterdir()] == ["system.jsonl"], "nothing half-made stays"
    fill(file, range(tries, tries + 10))
    assert len(times(path)) == tries + 10
    monkeypatch.undo()
    assert fill(file, range(tries + 10, tries + 400)) > 0
    assert path.stat().st_size <= 61 * KIB


WRITER = """
import sys
from pathlib import Path
from trainwiz.core.supervise.recorder import SampleFile
file = SampleFile(Path(sys.argv[1]), most_bytes=40_000, newest_bytes=10_000, older_bytes=10_000)
print("ready", flush=True)
second = int(sys.argv[2])
while True:
    file.append({"time_s": float(second), "filler": "x" * 100})
    file.thin()
    second += 1
"""


@pytest.mark.all
def test_killed_at_any_moment_it_is_one_whole_file(path: Path) -> None:
    start = 0
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(path), str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(0.15)
            writer.send_signal(signal.SIGKILL)
        tail = JsonLinesTail(path)
        found = [one["time_s"] for one in tail.read_new()]
        assert found == sorted(found) and found[0] == 0.0
        assert found[-1] > start
        assert tail.garbage_lines <= 8
        assert path.stat().st_size < 50_000
        start = int(found[-1]) + 1


def test_what_was_read_by_an_offset_is_read_anew(path: Path) -> None:
    file = small(path)
    fill(file, range(300))
    tail = JsonLinesTail(path)
    assert len(tail.read_new()) == 300
    seconds = iter(range(300, 5_000))
    while not fill(file, range(first := next(seconds), first + 1)):
        pass
    found = tail.read_new()
    assert tail.resets == 1
    assert [one["time_s"] for one in found] == times(path)
    file.append(row(9_999.0))
    assert [one["time_s"] for one in tail.read_new()] == [9_999.0]
