"""The recorder over the fake driver, and its file: bounded for ever, whole where it is new, even where it is old."""

import itertools
import json
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise import recorder as recorder_module
from trainwiz.core.supervise import ties
from trainwiz.core.supervise.recorder import Recorder, append_sample
from trainwiz.core.telemetry.machine import MachineSampler

from tests.core.supervise.conftest import system_lines as rows
from tests.core.supervise.conftest import until as wait_for
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml

KIB = 1024


def record(run: RunFolder, until: Callable[[], bool]) -> Recorder:
    """A recorder that ran until `until` held."""
    one = Recorder(run, 0.05)
    one.start()
    wait_for(until)
    one.stop()
    return one


def test_a_line_holds_the_machine_and_the_next_attempt_knows_the_peak(driver: FakeNvml, run: RunFolder) -> None:
    driver.write([FakeGpu(utilization=5, memory_used=9 * GIB), FakeGpu(lost=True)])
    record(run, lambda: len(rows(run)) >= 2)
    second = rows(run)[1]
    assert set(second) == {"time_s", "gpus", "host", "processes", "unavailable", "so_far"}
    assert [gpu["utilization_percent"] for gpu in second["gpus"]] == [5, None]
    assert second["host"]["ram_used_bytes"] > 0 and second["processes"][0]["rss_bytes"] > 0
    seen = len(rows(run))
    driver.write([FakeGpu(memory_used=GIB)])
    record(run, lambda: len(rows(run)) > seen)
    assert 9 * GIB in rows(run)[seen]["so_far"]["peak_gpu_bytes"].values()


def test_a_driver_that_hangs_delays_no_stop(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()
    monkeypatch.setattr(MachineSampler, "sample", lambda self: {"asked": asked.set(), "answered": answers.wait()})
    one = Recorder(run, 0.05)
    one.start()
    assert asked.wait(600)
    one.stop()
    assert one._thread.is_alive()
    answers.set()
    one._thread.join(timeout=600)


def test_a_folder_that_is_gone_is_one_line_in_the_log(
    driver: FakeNvml, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    gone = RunFolder(run.path / "gone")
    # The threads of earlier tests may still have something to say.
    monkeypatch.setattr(ties, "log", lambda line: said.append(line) if str(gone.path) in line else None)
    one = record(gone, lambda: bool(said))
    assert one.problem is not None and "FileNotFoundError" in one.problem
    assert len(said) == 1
    gone.path.mkdir()
    assert record(gone, lambda: len(rows(gone)) >= 2).problem is None


def test_a_system_that_gives_no_thread_ends_no_run(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Recorder(run, 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(one._thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        one.start()
    assert "can't start new thread" in (one.problem or "")
    one.stop()


# system.jsonl


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With small bounds."""
    for name, bound in (("MOST_BYTES", 60 * KIB), ("NEWEST_BYTES", 20 * KIB), ("OLDER_BYTES", 20 * KIB)):
        monkeypatch.setattr(recorder_module, name, bound)
    return tmp_path / "system.jsonl"


def times(path: Path) -> list[float]:
    return [json.loads(line)["time_s"] for line in path.read_text().splitlines()]


def fill(path: Path, seconds: range) -> int:
    """Appends a row a second; how often the file was thinned."""
    thinned = 0
    for second in seconds:
        before = path.stat().st_size if path.exists() else 0
        append_sample(path, {"time_s": float(second), "gpus": [], "host": {"cpu_percent": 1.0}, "filler": "x" * 60})
        thinned += path.stat().st_size < before
    return thinned


def test_it_stays_below_its_bound_the_newest_whole_and_the_old_evenly_spread(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    largest = thinned = 0
    for start in range(0, 8_000, 50):
        thinned += fill(path, range(start, start + 50))
        largest = max(largest, path.stat().st_size)
    assert largest <= 61 * KIB and thinned > 10
    kept = times(path)
    assert kept == sorted(kept) and kept[0] == 0
    assert kept[-150:] == [float(second) for second in range(7_850, 8_000)]
    spread = [gap for gap in (after - before for before, after in itertools.pairwise(kept)) if gap > 1]
    assert len(spread) > 30
    usual = statistics.median(spread)
    assert max(spread) <= 2 * usual, "no part of the past is much thinner than the rest"
    assert sum(gap < usual / 2 for gap in spread) < len(spread) / 5, "little of it is much denser"
    assert path.stat().st_mode & 0o777 == 0o640, "as readable as the one before"


def test_a_thinning_that_fails_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(recorder_module.shutil, "copymode", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            fill(path, range(2_000))
        tries = len(times(path))
        assert [entry.name for entry in path.parent.iterdir()] == ["system.jsonl"], "nothing half-made stays"
    assert fill(path, range(tries, tries + 400)) > 0
    assert times(path)[:1] == [0.0] and path.stat().st_size <= 61 * KIB
