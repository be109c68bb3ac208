"""Series, metrics, peaks and trends: counts, extremes, rewinding, decimation and their cost; what a late viewer knows."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from trainwiz.core.telemetry.machine import MachineHistory, Peaks
from trainwiz.core.telemetry.metrics import MOST_NAMES, Metrics
from trainwiz.core.telemetry.series import (
    FIRST_BUCKET_POINTS,
    LEAST_SPAN_S,
    MOST_POINTS,
    MOST_SPAN_S,
    RAW_POINTS,
    Series,
    Trend,
    fill_between,
    smooth,
)

from tests.each import each

GIB = 1024**3


def test_counts_include_non_finite_values_and_extremes_do_not() -> None:
    metrics, values = Metrics(), [2.0, math.nan, -1.0, math.inf, 3.0, -math.inf]
    metrics.add_rows({"step": step, "loss": value} for step, value in enumerate(values, start=1))
    summary = metrics.summaries()["loss"]
    assert (summary.count, summary.non_finite, summary.minimum, summary.maximum) == (6, 3, -1.0, 3.0)
    assert metrics.non_finite_steps("loss") == (2.0, 4.0, 6.0)
    assert summary.to_json() == {"last": None, "count": 6, "min": -1.0, "max": 3.0, "non_finite": 3}
    json.dumps(summary.to_json(), allow_nan=False)


def test_a_resumed_run_forgets_what_lies_after_its_checkpoint() -> None:
    metrics = Metrics()
    metrics.add_rows({"step": step, "loss": 10.0 - step} for step in range(1, 9))
    metrics.add_rows([{"resumed_from": 5, "time_s": 1.0}, {"step": 6, "loss": 0.5}])
    summary = metrics.summaries()["loss"]
    assert (summary.count, summary.last, summary.maximum, summary.minimum) == (6, 0.5, 9.0, 0.5)
    assert list(metrics.curve("loss").steps) == [1, 2, 3, 4, 5, 6]
    # A step that goes back without a marker is a restart too.
    metrics = Metrics()
    metrics.add_rows({"step": step, "loss": 1.0} for step in (1, 2, 3, 4, 2, 3))
    assert list(metrics.curve("loss").steps) == [1, 2, 3]


def test_evaluation_lines_do_not_disturb_the_pace() -> None:
    metrics = Metrics()
    for step in range(1, 21):
        metrics.add_rows([{"time_s": 100.0 + step * 2, "step": step, "loss": 1.0, "step_s": 1.5, "data_wait_s": 0.3}])
        metrics.add_rows([{"time_s": 100.0 + step * 2 + 0.4, "step": step, "eval_loss": 1.0}])
    pace = metrics.pace()
    assert (pace.step_s, pace.wall_step_s, pace.data_wait) == (1.5, pytest.approx(2.0), pytest.approx(0.2))


def test_a_flood_of_names_is_bounded() -> None:
    metrics = Metrics()
    metrics.add_rows({"step": n, f"name{n}": 1.0} for n in range(MOST_NAMES + 9))
    assert len(metrics.summaries()) == MOST_NAMES


@each("count", [1, 2 * RAW_POINTS + 7])
def test_decimation_keeps_every_extreme_and_the_mean(count: int) -> None:
    source = random.Random(count)
    values = [source.gauss(0, 1) for _ in range(count)]
    values[count // 2] = 50.0
    values[count // 3] = -50.0 if count > 3 else values[count // 3]
    series = Series()
    for step, value in enumerate(values):
        series.add(step, value)
    columns = series.curve().columns(0, max(count - 1, 1), 1)
    assert columns.low[0] == min(values) == series.minimum
    assert columns.high[0] == max(values) == series.maximum
    assert columns.mean[0] == pytest.approx(sum(values) / count)
    assert series.count == len(series.curve()) == count


def test_columns_put_each_point_where_it_belongs_and_rewinding_is_right_within_one_bucket() -> None:
    series = Series()
    for step in range(100):
        series.add(step, float(step))
    columns = series.curve().columns(0, 99, 10)
    for index in range(10):
        inside = [step for step in range(100) if index * 9.9 <= step < (index + 1) * 9.9 or (index == 9 and step == 99)]
        assert (columns.low[index], columns.high[index]) == (min(inside), max(inside))
    for step in range(100, 4 * RAW_POINTS):
        series.add(step, float(step))
    series.rewind(1000)
    assert 0 <= series.count - 1001 < FIRST_BUCKET_POINTS
    assert series.maximum is not None and series.maximum - 1000 < FIRST_BUCKET_POINTS


def test_smoothing_keeps_a_constant_and_the_start_fills_gaps_and_reduces_noise() -> None:
    line = smooth([None, 2.0, None, None, 2.0, 2.0, None], 3)
    assert line[0] is None and line[-1] is None
    assert line[1:6] == pytest.approx((2.0,) * 5)
    assert fill_between([1.0, None, 3.0]) == (1.0, 2.0, 3.0)
    source = random.Random(1)
    values = [3.0 * math.exp(-index / 30) + source.gauss(0, 0.2) for index in range(240)]
    line = smooth(values, 5)
    assert line[0] == values[0]
    spread = [abs(a - 3.0 * math.exp(-index / 30)) for index, a in enumerate(line) if a is not None]
    assert sum(spread[20:-20]) / len(spread[20:-20]) < 0.08


# Peaks: a viewer that comes late knows what one that was there from the beginning knows.


def row(second: float, *, used: int = GIB, busy: float | None = 90.0, hot: bool = False) -> dict[str, Any]:
    card = {
        "index": 0,
        "uuid": "GPU-a",
        "memory_used_bytes": used,
        "utilization_percent": busy,
        "throttle_reasons": ["heat (hardware)"] if hot else ["clock setting"],
        "processes": [{"pid": 7, "name": "python", "kind": "compute", "memory_used_bytes": used}],
    }
    return {
        "time_s": 1e9 + second,
        "gpus": [card],
        "host": {"disk_free_bytes": 100 * GIB - second * 1e6, "ram_used_bytes": 5, "ram_total_bytes": 10},
        "processes": [{"pid": 7, "role": "trainer", "rss_bytes": used}, {"pid": 8, "role": "loader", "rss_bytes": 5}],
    }


def peaks_of(*rows: dict[str, Any]) -> Peaks:
    peaks = Peaks()
    for one in rows:
        peaks.add(one)
    return peaks


def test_a_late_viewer_knows_the_same() -> None:
    rows = [row(second, used=9 * GIB if second == 5 else GIB, hot=second > 10, busy=2.0) for second in range(300)]
    whole = peaks_of(*rows)
    rows[-1]["so_far"] = json.loads(json.dumps(whole.to_json()))
    late = peaks_of(*rows[-3:])
    assert late.peak_gpu_bytes == late.peak_job_gpu_bytes == {"GPU-a": 9 * GIB}
    assert (late.peak_job_rss_bytes, late.peak_trainer_rss_bytes) == (9 * GIB + 5, 9 * GIB)
    assert late.throttled_since_s == {"GPU-a": 1e9 + 11}
    assert late.idle_since_s == {"GPU-a": 1e9}
    lists = {"peak_gpu_bytes": [1], "peak_job_gpu_bytes": 5, "throttled_since_s": "now"}
    for garbage in (3, [], lists):
        assert peaks_of({**row(0), "so_far": garbage}).peak_gpu_bytes == {"GPU-a": GIB}


def test_idle_is_below_five_percent_and_nothing_lasts_over_a_night_without_samples() -> None:
    peaks = peaks_of(row(0, busy=5.0))
    assert peaks.idle_since_s == {}
    peaks.add(row(1, busy=4.9))
    assert peaks.idle_since_s == {"GPU-a": 1e9 + 1}
    night = peaks_of(row(0, hot=True, busy=0.0), row(30_000, hot=True, busy=0.0))
    assert night.throttled_since_s == night.idle_since_s == {"GPU-a": 1e9 + 30_000}


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


def trend_of(amounts: list[float], every_s: float = 10.0) -> Trend:
    trend = Trend()
    for index, amount in enumerate(amounts):
        trend.add(index * every_s, amount)
    return trend


SHRINKS = [1_000.0 - index for index in range(101)]
LONG = [1e6 - index for index in range(4_000)]


@each(
    ("amounts", "every_s", "lasts_s", "within"),
    [
        (SHRINKS, 10.0, 9_000, 1e-6),
        ([100.0, 50.0], LEAST_SPAN_S - 1, None, 0),
        # Still, growing; one large file, late or early, is no pace.
        ([500.0] * 100, 10.0, None, 0),
        ([500.0 + index for index in range(100)], 10.0, None, 0),
        ([500.0] * 5 + [400.0] * 95, 10.0, None, 0),
        (LONG, 10.0, (1e6 - 3_999) * 10, 0.02),
        # A leak through the teeth of a saw.
        ([10_000.0 - 10 * index - 40 * (index % 7) for index in range(200)], 10.0, 8_000, 0.1),
    ],
)
def test_what_shrinks_lasts_as_long_as_its_pace_says(
    amounts: list[float], every_s: float, lasts_s: float | None, within: float
) -> None:
    found = trend_of(amounts, every_s).lasts_s()
    assert found == (None if lasts_s is None else pytest.approx(lasts_s, rel=within))


def test_a_trend_is_bounded_forgets_the_day_before_yesterday_and_what_a_clock_set_back() -> None:
    assert (trend_of(SHRINKS).span_s, Trend().span_s) == (1_000, 0)
    trend = trend_of(LONG)
    assert len(trend.points) <= MOST_POINTS + 1
    assert trend.points[-1] == (39_990.0, 1e6 - 3_999)
    trend = trend_of([1e6 - 500 * min(index, 300) for index in range(1_000)], every_s=100.0)
    assert MOST_SPAN_S <= trend.span_s < MOST_SPAN_S * 1.1
    assert trend.lasts_s() is None, "nothing shrank in the last twelve hours"
    trend = trend_of(SHRINKS)
    trend.add(5.0, 900.0)
    assert trend.points == [(5.0, 900.0)]
