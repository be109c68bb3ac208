"""Peaks: a viewer that comes late knows what one that was there from the beginning knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.peaks import LEAST_SPAN_S, MOST_POINTS, MOST_SPAN_S, Peaks, Trend
from trainwiz.core.telemetry.words import span_words

from tests.each import each

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


def test_nothing_is_said_to_have_lasted_over_a_night_without_samples() -> None:
    so_far = Peaks()
    so_far.add(row(0, hot=True, busy=0.0))
    so_far.add(row(30_000, hot=True, busy=0.0))
    assert so_far.throttled_since_s == so_far.idle_since_s == {"GPU-a": 1e9 + 30_000}


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


def test_five_percent_is_not_idle() -> None:
    so_far = Peaks()
    so_far.add(row(0, busy=5.0))
    assert so_far.idle_since_s == {}
    so_far.add(row(1, busy=4.9))
    assert so_far.idle_since_s == {"GPU-a": 1e9 + 1}


# Trend: how long what shrinks will last.


def trend_of(amounts: list[float], every_s: float = 10.0) -> Trend:
    trend = Trend()
    for index, amount in enumerate(amounts):
        trend.add(index * every_s, amount)
    return trend


def test_what_shrinks_evenly_lasts_as_long_as_its_pace_says() -> None:
    trend = trend_of([1_000.0 - index for index in range(101)])
    assert trend.span_s == 1_000
    assert trend.lasts_s() == pytest.approx(9_000)


def test_a_short_look_is_no_pace() -> None:
    assert trend_of([100.0, 50.0], every_s=LEAST_SPAN_S - 1).lasts_s() is None
    assert Trend().lasts_s() is None and Trend().span_s == 0


@pytest.mark.parametrize(
    "amounts",
    [
        [500.0] * 100,
        [500.0 + index for index in range(100)],
        [500.0] * 70 + [400.0] * 30,
        [500.0] * 5 + [400.0] * 95,
    ],
    ids=["still", "growing", "one large file late", "one large file early"],
)
def test_one_large_file_is_no_pace(amounts: list[float]) -> None:
    assert trend_of(amounts).lasts_s() is None


def test_it_stays_bounded_and_true() -> None:
    trend = trend_of([1e6 - index for index in range(4_000)])
    assert len(trend.points) <= MOST_POINTS + 1
    assert trend.lasts_s() == pytest.approx((1e6 - 3_999) * 10, rel=0.02)
    assert trend.points[-1] == (39_990.0, 1e6 - 3_999)


def test_the_day_before_yesterday_does_not_count() -> None:
    trend = Trend()
    for index in range(1_000):
        trend.add(index * 100.0, 1e6 - 500 * min(index, 300))
    assert MOST_SPAN_S <= trend.span_s < MOST_SPAN_S * 1.1
    assert trend.lasts_s() is None, "nothing shrank in the last twelve hours"


def test_a_clock_that_was_set_back_starts_anew() -> None:
    trend = trend_of([1_000.0 - index for index in range(50)])
    trend.add(5.0, 900.0)
    assert trend.points == ((5.0, 900.0),)


@each(
    ("seconds", "words"),
    [(0.25, "0.25 s"), (7, "7 s"), (90, "90 s"), (150, "2 min"), (5_400, "90 min"), (18_000, "5 h"), (9e5, "10 days")],
)
def test_spans_in_words(seconds: float, words: str) -> None:
    assert span_words(seconds) == words


def test_a_leak_is_seen_through_the_teeth_of_a_saw() -> None:
    amounts = [10_000.0 - 10 * index - 40 * (index % 7) for index in range(200)]
    assert trend_of(amounts).lasts_s() == pytest.approx(8_000, rel=0.1)


def test_pages_that_are_copied_once_are_judged_by_what_is_left_of_it() -> None:
    """Workers touch all rows once: fast at first, slower and slower. The newest pace counts."""
    amounts = [100.0 - 40.0 * (1 - 0.97**index) for index in range(100)]
    lasts_s = trend_of(amounts).lasts_s()
    assert lasts_s is not None and lasts_s > 2 * 60.0 / 40.0 * 1_000
