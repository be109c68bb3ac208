"""Peaks: a viewer that comes late knows what one that was there from the beginning knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.peaks import Peaks

GIB = 1024**3


def row(second: float, *, used: int = GIB, busy: float | None = 90.0, hot: bool = False) -> dict[str, Any]:
    return {
        "time_s": 1e9 + second,
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-a",
                "memory_used_bytes": used,
                "utilization_percent": busy,
                "throttle_reasons": ["heat (hardware)"] if hot else ["clock setting"],
                "processes": [{"pid": 7, "name": "python", "kind": "compute", "memory_used_bytes": used}],
            }
        ],
        "host": {"disk_free_bytes": 100 * GIB - second * 1e6, "ram_used_bytes": 5, "ram_total_bytes": 10},
        "processes": [{"pid": 7, "role": "trainer", "rss_bytes": used}, {"pid": 8, "role": "loader", "rss_bytes": 5}],
    }


def test_a_late_viewer_knows_the_same() -> None:
    rows = [row(second, used=9 * GIB if second == 5 else GIB, hot=second > 10, busy=2.0) for second in range(300)]
    whole = Peaks()
    for one in rows:
        whole.add(one)
    rows[-1]["so_far"] = json.loads(json.dumps(whole.to_json()))
    late = Peaks()
    for one in rows[-3:]:
        late.add(one)
    assert late.peak_gpu_bytes == {"GPU-a": 9 * GIB}
    assert (late.peak_job_rss_bytes, late.peak_trainer_rss_bytes) == (9 * GIB + 5, 9 * GIB)
    assert late.peak_job_gpu_bytes == {"GPU-a": 9 * GIB}
    assert late.throttled_since_s == {"GPU-a": 1e9 + 11}
    assert late.idle_since_s == {"GPU-a": 1e9}
    assert late.disk.span_s == pytest.approx(whole.disk.span_s)
    assert late.disk.lasts_s() == pytest.approx(whole.disk.lasts_s(), rel=0.03)


def test_what_has_passed_is_not_brought_back() -> None:
    so_far = Peaks()
    so_far.add(row(0, hot=True, busy=0.0))
    remembered = row(1, hot=False)
    remembered["so_far"] = so_far.to_json()
    so_far.add(remembered)
    assert so_far.throttled_since_s == so_far.idle_since_s == {}


def test_nothing_is_said_to_have_lasted_over_a_night_without_samples() -> None:
    so_far = Peaks()
    so_far.add(row(0, hot=True, busy=0.0))
    so_far.add(row(30_000, hot=True, busy=0.0))
    assert so_far.throttled_since_s == so_far.idle_since_s == {"GPU-a": 1e9 + 30_000}


def test_an_idle_card_is_one_that_says_so() -> None:
    so_far = Peaks()
    so_far.add(row(0, busy=None))
    assert so_far.idle_since_s == {}


@pytest.mark.parametrize(
    "garbage",
    [
        3,
        [],
        {
            "peak_gpu_bytes": [1],
            "peak_job_gpu_bytes": 5,
            "throttled_since_s": "now",
            "disk_free": [[1], "x", [None, 2]],
        },
    ],
)
def test_garbage_is_passed_over(garbage: Any) -> None:
    so_far = Peaks()
    so_far.add({**row(0), "so_far": garbage})
    assert so_far.peak_gpu_bytes == {"GPU-a": GIB}


def test_readings_tell_this_job_from_others() -> None:
    one = row(0)
    one["gpus"][0]["processes"].append({"pid": 9, "name": "x\x1b[2Jorg", "kind": "graphics", "memory_used_bytes": None})
    one["gpus"][0] |= {"fan_percent": 40, "clock_mhz": 1500, "clock_limit_mhz": 1980, "mig": "enabled"}
    history = MachineHistory()
    history.add_rows([one])
    (gpu,) = history.gpus()
    mine, other = gpu.processes
    assert (mine.mine, mine.kind, mine.memory_used_bytes) == (True, "compute", GIB)
    assert (other.mine, other.kind, other.name, other.memory_used_bytes) == (False, "graphics", "xorg", None)
    assert (gpu.job_memory_bytes, gpu.fan_percent, gpu.clock_mhz, gpu.clock_limit_mhz) == (GIB, 40, 1500, 1980)
    assert gpu.memory_history == (float(GIB),)


def test_a_clock_that_was_set_back_begins_all_spans_anew() -> None:
    so_far = Peaks()
    so_far.add(row(500, hot=True, busy=0.0))
    so_far.add(row(400, hot=True, busy=0.0))
    assert so_far.throttled_since_s == so_far.idle_since_s == {"GPU-a": 1e9 + 400}


def test_five_percent_is_not_idle() -> None:
    so_far = Peaks()
    so_far.add(row(0, busy=5.0))
    assert so_far.idle_since_s == {}
    so_far.add(row(1, busy=4.9))
    assert so_far.idle_since_s == {"GPU-a": 1e9 + 1}


def test_free_ram_is_what_is_not_used() -> None:
    so_far = Peaks()
    so_far.add({**row(0), "host": {"ram_used_bytes": 3, "ram_total_bytes": 10}})
    assert so_far.ram.points == ((1e9, 7),)


def test_the_earlier_begin_of_what_still_lasts_counts() -> None:
    so_far = Peaks()
    so_far.add(row(10, hot=True, busy=0.0))
    for began_s in (1e9 + 5, 1e9 + 8):
        so_far.add({**row(11, hot=True, busy=0.0), "so_far": {"throttled_since_s": {"GPU-a": began_s}}})
        assert so_far.throttled_since_s == {"GPU-a": 1e9 + 5}
