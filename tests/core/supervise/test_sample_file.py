"""SampleFile: bounded for ever, whole where it is new, even where it is old, never half."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.supervise.recorder import SampleFile
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.peaks import Peaks

KIB = 1024


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


def test_it_stays_below_its_bound_and_the_newest_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    file = small(path)
    largest = 0
    for start in range(0, 20_000, 50):
        fill(file, range(start, start + 50))
        largest = max(largest, path.stat().st_size)
    assert largest <= 61 * KIB
    kept = times(path)
    assert kept == sorted(kept)
    assert kept[0] == 0 and kept[-1] == 19_999
    newest = kept[-150:]
    assert newest == [float(second) for second in range(19_850, 20_000)]


def test_what_is_old_is_evenly_spread(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    assert fill(small(path), range(20_000)) > 10
    gaps = [after - before for before, after in itertools.pairwise(times(path))]
    spread = [gap for gap in gaps if gap > 1]
    assert len(spread) > 30
    usual = statistics.median(spread)
    assert max(spread) <= 2 * usual, "no part of the past is much thinner than the rest"
    assert sum(gap < usual / 2 for gap in spread) < len(spread) / 5, "little of it is much denser"


def test_peaks_of_rows_that_are_gone_are_still_known(tmp_path: Path) -> None:
    """As the recorder writes it: `so_far` beside some rows."""
    path = tmp_path / "system.jsonl"
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


def test_half_a_line_of_a_killed_keeper_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.write_text('{"time_s": 1.0}\n{"time_s": 2.0, "gp')
    SampleFile(path).append({"time_s": 3.0})
    tail = JsonLinesTail(path)
    assert [one["time_s"] for one in tail.read_new()] == [1.0, 3.0]
    assert tail.garbage_lines == 1


def test_lines_that_are_no_samples_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.write_bytes(b'\xff\xfe garbage\n[]\n{"time_s": "soon"}\n{"time_s": 1e999e}\n' + b"z" * 40 * KIB + b"\n")
    file = small(path)
    fill(file, range(100, 700))
    kept = [json.loads(line)["time_s"] for line in path.read_bytes().splitlines()]
    assert kept[0] == 100.0 and kept[-1] == 699.0


def test_a_clock_that_was_set_back_costs_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    file = small(path)
    fill(file, range(10_000, 12_000))
    fill(file, range(500, 4_000))
    kept = times(path)
    assert max(kept) >= 11_000 and kept[-1] == 3_999
    assert len([time_s for time_s in kept if 500 <= time_s < 3_500]) > 30, (
        "older ones after the change are thinned, not gone"
    )
    assert path.stat().st_size <= 61 * KIB


def test_where_it_cannot_be_thinned_it_goes_on_and_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "system.jsonl"
    file = small(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        fill(file, range(2_000))
    tries = len(times(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["system.jsonl"], "nothing half-made stays"
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
def test_killed_at_any_moment_it_is_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    start = 0
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout.readline() == "ready\n"
        try:
            writer.wait(timeout=0.15)
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        writer.stdout.close()
        tail = JsonLinesTail(path)
        rows = [one["time_s"] for one in tail.read_new()]
        assert rows == sorted(rows) and rows[0] == 0.0
        assert rows[-1] > start
        assert tail.garbage_lines <= 8
        assert path.stat().st_size < 50_000
        start = int(rows[-1]) + 1


def test_the_thinned_file_is_as_readable_as_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.touch()
    path.chmod(0o640)
    assert fill(small(path), range(700)) > 0
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_was_read_by_an_offset_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    file = small(path)
    fill(file, range(300))
    tail = JsonLinesTail(path)
    assert len(tail.read_new()) == 300
    seconds = iter(range(300, 5_000))
    while not fill(file, range(first := next(seconds), first + 1)):
        pass
    rows = tail.read_new()
    assert tail.resets == 1
    assert [one["time_s"] for one in rows] == times(path)
    file.append(row(9_999.0))
    assert [one["time_s"] for one in tail.read_new()] == [9_999.0]
