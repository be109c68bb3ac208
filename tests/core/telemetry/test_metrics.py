"""Series and metrics: counts, extremes, rewinding, decimation, and their cost."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from array import array

import pytest
from trainwiz.core.telemetry.metrics import MOST_NAMES, Metrics
from trainwiz.core.telemetry.series import FIRST_BUCKET_POINTS, RAW_POINTS, Series, fill_between, smooth

from tests.each import each


def test_counts_include_non_finite_values_and_extremes_do_not() -> None:
    metrics = Metrics()
    metrics.add_rows(
        {"step": step, "loss": value}
        for step, value in enumerate([2.0, math.nan, -1.0, math.inf, 3.0, -math.inf], start=1)
    )
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


def test_a_step_that_goes_back_without_a_marker_is_a_restart_too() -> None:
    metrics = Metrics()
    metrics.add_rows({"step": step, "loss": 1.0} for step in (1, 2, 3, 4, 2, 3))
    assert list(metrics.curve("loss").steps) == [1, 2, 3]


def test_evaluation_lines_do_not_disturb_the_pace() -> None:
    metrics = Metrics()
    for step in range(1, 21):
        metrics.add_rows([{"time_s": 100.0 + step * 2, "step": step, "loss": 1.0, "step_s": 1.5, "data_wait_s": 0.3}])
        metrics.add_rows([{"time_s": 100.0 + step * 2 + 0.4, "step": step, "eval_loss": 1.0}])
    pace = metrics.pace()
    assert pace.step_s == 1.5
    assert pace.wall_step_s == pytest.approx(2.0)
    assert pace.data_wait == pytest.approx(0.2)


def test_a_flood_of_names_is_bounded() -> None:
    metrics = Metrics()
    metrics.add_rows({"step": n, f"name{n}": 1.0} for n in range(3 * MOST_NAMES))
    assert len(metrics.summaries()) == MOST_NAMES
    assert metrics.names_left_out == 2 * MOST_NAMES


@pytest.mark.parametrize("count", [1, 100, 2 * RAW_POINTS + 7, 3 * RAW_POINTS])
def test_decimation_keeps_every_extreme_and_the_mean(count: int) -> None:
    source = random.Random(count)
    values = [source.gauss(0, 1) for _ in range(count)]
    values[count // 2] = 50.0
    values[count // 3] = -50.0 if count > 3 else values[count // 3]
    series = Series()
    for step, value in enumerate(values):
        series.add(step, value)
    columns = series.curve().columns(0, count - 1, 1) if count > 1 else series.curve().columns(0, 1, 1)
    assert columns.low[0] == min(values) == series.minimum
    assert columns.high[0] == max(values) == series.maximum
    assert columns.mean[0] == pytest.approx(sum(values) / count)
    assert series.count == len(series.curve()) == count


@each("kind", ["constant", "one stands out", "counter", "noise", "not a number"])
def test_many_points_at_once_are_what_they_are_one_by_one(kind: str) -> None:
    count = 2 * RAW_POINTS + 5
    source = random.Random(7)
    values = {
        "constant": [0.1] * count,
        "one stands out": [0.25] * (count - 9) + [-3.0] + [0.25] * 8,
        "counter": [float(step) for step in range(count)],
        "noise": [source.gauss(0, 1) for _ in range(count)],
        "not a number": [math.nan if step == 5 else 0.5 for step in range(count)],
    }[kind]
    steps = array("d", range(count))
    at_once, by_one = Series(), Series()
    for start in range(0, count, 3_000):
        at_once.extend(steps[start : start + 3_000], array("d", values[start : start + 3_000]))
    for step, value in zip(steps, values, strict=True):
        by_one.add(step, value)
    for name in ("count", "non_finite", "first", "last", "last_step", "minimum", "maximum", "non_finite_steps"):
        assert getattr(at_once, name) == getattr(by_one, name), name
    first, second = at_once.curve().columns(0, count, 1000), by_one.curve().columns(0, count, 1000)
    assert (first.low, first.high) == (second.low, second.high)
    assert first.mean == pytest.approx(second.mean)


def test_columns_put_each_point_where_it_belongs() -> None:
    series = Series()
    for step in range(100):
        series.add(step, float(step))
    columns = series.curve().columns(0, 99, 10)
    for index in range(10):
        inside = [step for step in range(100) if index * 9.9 <= step < (index + 1) * 9.9 or (index == 9 and step == 99)]
        assert (columns.low[index], columns.high[index]) == (min(inside), max(inside))


def test_rewinding_far_back_is_right_within_one_bucket() -> None:
    series = Series()
    for step in range(4 * RAW_POINTS):
        series.add(step, float(step))
    series.rewind(1000)
    assert 0 <= series.count - 1001 < FIRST_BUCKET_POINTS
    assert series.maximum is not None and series.maximum - 1000 < FIRST_BUCKET_POINTS


def test_a_million_points_stay_small_and_cheap_to_draw() -> None:
    steps = array("d", range(1_000_000))
    values = array("d", [step * 0.5 for step in steps])
    tracemalloc.start()
    series = Series()
    for start in range(0, 1_000_000, 10_000):
        series.extend(steps[start : start + 10_000], values[start : start + 10_000])
    curve = series.curve()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert series.count == 1_000_000
    assert peak < 12 * 1024 * 1024
    columns = curve.columns(0, 999_999, 240)
    assert all(value is not None for value in columns.low)
    assert columns.high[-1] == 999_999 * 0.5


def test_smoothing_keeps_a_constant_and_fills_gaps() -> None:
    line = smooth([None, 2.0, None, None, 2.0, 2.0, None], 3)
    assert line[0] is None and line[-1] is None
    assert line[1:6] == pytest.approx((2.0,) * 5)
    assert fill_between([1.0, None, 3.0]) == (1.0, 2.0, 3.0)


def test_smoothing_reduces_noise_and_keeps_the_start() -> None:
    source = random.Random(1)
    values = [3.0 * math.exp(-index / 30) + source.gauss(0, 0.2) for index in range(240)]
    line = smooth(values, 5)
    assert line[0] == values[0]
    spread = [abs(a - 3.0 * math.exp(-index / 30)) for index, a in enumerate(line) if a is not None]
    assert sum(spread[20:-20]) / len(spread[20:-20]) < 0.08
