"""Series, metrics, peaks and trends: counts, extremes, rewinding, decimation; what a late viewer knows; answers."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.telemetry.machine import TREND_S, MachineHistory, Peaks, Trend
from trainwiz.core.telemetry.metrics import MOST_GROUPS, Metrics, Series, smooth
from trainwiz.core.telemetry.snapshot import AnswersFile

from tests.each import each

GIB = 1024**3


def test_a_resumed_run_forgets_what_lies_after_its_checkpoint() -> None:
    metrics = Metrics()
    metrics.add_rows({"step": step, "loss": 10.0 - step} for step in range(1, 9))
    metrics.add_rows([{"resumed_from": 5, "time_s": 1.0}, {"step": 6, "loss": 0.5}])
    summary = metrics.summaries()["loss"]
    assert (summary.count, summary.last, summary.maximum, summary.minimum) == (6, 0.5, 9.0, 0.5)
    assert list(metrics.of("loss").curve().steps) == [1, 2, 3, 4, 5, 6]
    # A step that goes back without a marker is a restart too.
    metrics = Metrics()
    metrics.add_rows({"step": step, "loss": 1.0} for step in (1, 2, 3, 4, 2, 3))
    assert list(metrics.of("loss").curve().steps) == [1, 2, 3]


def test_evaluation_lines_do_not_disturb_the_pace() -> None:
    metrics = Metrics()
    for step in range(1, 21):
        metrics.add_rows([{"time_s": 100.0 + step * 2, "step": step, "loss": 1.0, "step_s": 1.5, "data_wait_s": 0.3}])
        metrics.add_rows([{"time_s": 100.0 + step * 2 + 0.4, "step": step, "eval_loss": 1.0}])
    pace = metrics.pace()
    assert (pace.step_s, pace.wall_step_s, pace.data_wait) == (1.5, pytest.approx(2.0), pytest.approx(0.2))


def test_the_first_steps_are_not_held_against_the_plan() -> None:
    """Of ESM-2 650M on an H100, planned 5.15 to 7.66 s: the first steps load kernels and make the optimizer's states."""
    metrics, judged = Metrics(), []
    for step, seconds in enumerate([14.2, 8.7, 7.4, 7.7], 1):
        metrics.add_rows([{"time_s": 100.0 + step, "step": step, "loss": 1.0, "step_s": seconds}])
        judged.append(metrics.pace().against(5.15, 7.66))
    assert judged == [None, None, "planned", "planned"] and metrics.pace().step_s == 7.7


def test_decimation_keeps_every_extreme_and_the_mean() -> None:
    count = 2 * MOST_GROUPS + 7
    source = random.Random(count)
    values = [source.gauss(0, 1) for _ in range(count)]
    values[count // 2] = 50.0
    values[count // 3] = -50.0
    series = Series()
    for step, value in enumerate(values):
        series.add(step, value)
    columns = series.curve().columns(0, count - 1, 1)
    assert (columns.low[0], columns.high[0]) == (min(values), max(values)) == (series.minimum, series.maximum)
    assert columns.mean[0] == pytest.approx(sum(values) / count)
    assert series.count == len(series.curve()) == count


def test_columns_put_each_point_where_it_belongs_and_rewinding_is_right_within_one_group() -> None:
    series = Series()
    for step in range(100):
        series.add(step, float(step))
    columns = series.curve().columns(0, 99, 10)
    for index in range(10):
        inside = [step for step in range(100) if index * 9.9 <= step < (index + 1) * 9.9 or (index == 9 and step == 99)]
        assert (columns.low[index], columns.high[index]) == (min(inside), max(inside))
    for step in range(100, 2 * MOST_GROUPS):
        series.add(step, float(step))
    series.rewind(1001)
    assert 0 <= series.count - 1001 < 4
    assert series.maximum is not None and series.maximum - 1000 < 4


def test_smoothing_keeps_a_constant_and_the_start_fills_gaps_and_reduces_noise() -> None:
    line = smooth([None, 2.0, None, None, 2.0, 2.0, None], 3)
    assert line == (None, *[pytest.approx(2.0)] * 5, None)
    assert smooth([1.0, None, 3.0], 0) == (1.0, 2.0, 3.0)
    source = random.Random(1)
    truth = [3.0 * math.exp(-index / 30) for index in range(240)]
    values = [value + source.gauss(0, 0.2) for value in truth]
    line = smooth(values, 5)
    assert line[0] == values[0]
    assert sum(abs((a or 0.0) - b) for a, b in zip(line[20:-20], truth[20:-20], strict=True)) / 200 < 0.08


def row(second: float, *, used: int = GIB, busy: float | None = 90.0) -> dict[str, Any]:
    mine = {"pid": 7, "name": "python", "kind": "compute", "memory_used_bytes": used}
    card = {"index": 0, "uuid": "GPU-a", "memory_used_bytes": used, "utilization_percent": busy, "processes": [mine]}
    processes = [{"pid": 7, "role": "trainer", "rss_bytes": used}, {"pid": 8, "role": "loader", "rss_bytes": 5}]
    return {"time_s": 1e9 + second, "gpus": [card], "processes": processes}


def peaks_of(*rows: dict[str, Any]) -> Peaks:
    peaks = Peaks()
    for one in rows:
        peaks.add(one)
    return peaks


def test_a_late_viewer_knows_the_same() -> None:
    rows = [row(second, used=9 * GIB if second == 5 else GIB, busy=2.0) for second in range(300)]
    whole = peaks_of(*rows)
    rows[-1]["so_far"] = json.loads(json.dumps(whole.to_json()))
    late = peaks_of(*rows[-3:])
    assert late.peak_gpu_bytes == late.peak_job_gpu_bytes == {"GPU-a": 9 * GIB}
    assert (late.peak_job_rss_bytes, late.peak_trainer_rss_bytes) == (9 * GIB + 5, 9 * GIB)
    for garbage in (3, [], {"peak_gpu_bytes": [1], "peak_job_gpu_bytes": 5}):
        assert peaks_of({**row(0), "so_far": garbage}).peak_gpu_bytes == {"GPU-a": GIB}


def test_idle_is_below_five_percent_and_nothing_lasts_over_a_night_without_samples() -> None:
    history = MachineHistory()
    for sample, since_s in (
        (row(0, busy=5.0), None), (row(1, busy=4.9), 1e9 + 1), (row(2, busy=0.0), 1e9 + 1), (row(30_000, busy=0.0), 1e9 + 30_000),
    ):  # fmt: skip
        history.add_rows([sample])
        assert history.gpus()[0].idle_since_s == since_s


def said(step: int, text: Any, prompt: int = 0, **more: Any) -> dict[str, Any]:
    return {"step": step, "prompt": prompt, "source": f"question {prompt}", "generation": text, "ended": True, **more}


def written(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


@each(("left", "lasts_s"), [
    ([1_000.0 - index for index in range(100)], 9_010.0),
    # Watched for too short; still; growing; one large file; memory that fills at a start; no number of bytes.
    ([1_000.0 - index for index in range(int(TREND_S / 10))], None), ([500.0] * 100, None),
    ([500.0 + index for index in range(100)], None), ([500.0] * 85 + [400.0] * 15, None),
    ([500.0 - 5 * min(index, 12) for index in range(31)], None), ([1e308 * (-1) ** index for index in range(100)], None),
])  # fmt: skip
def test_what_shrinks_steadily_lasts_as_long_as_its_pace_says(left: list[float], lasts_s: float | None) -> None:
    trend = Trend()
    for index, amount in enumerate(left):
        trend.add(1.8e9 + index * 10.0, amount)
    assert trend.lasts_s() == (None if lasts_s is None else pytest.approx(lasts_s))
    # Nothing is known of a night without samples, nor where the clock was set back.
    trend.add(1.7e9, 1.0)
    assert trend.lasts_s() is None


def test_the_first_and_the_newest_answer_of_each_prompt(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    file = AnswersFile(JsonLinesTail(path))
    assert file.read() == ()
    later = said(10, "c", reference="x", ended=False)
    written(path, said(0, "NaN", reference="x"), said(0, "b", 1), later, {"step": 10, "prompt": 1})
    first, second = file.read()
    assert [(one.step, one.text.lower(), one.ended) for one in first.answers] == [(0, "nan", True), (10, "c", False)]
    assert (first.reference, second.source, len(second.answers)) == ("x", "question 1", 1)
    # A run that is resumed from step 10 answers what came after it again.
    written(path, said(20, "lost"), {"resumed_from": 10}, said(20, "again"))
    assert [(answer.step, answer.text) for answer in file.read()[0].answers[1:]] == [(10, "c"), (20, "again")]
    # Texts that were generated for BLEU are prompts of their own.
    written(path, {"step": 20, "row": 0, "source": "s", "reference": "r", "generation": "g"})
    assert [prompt.source for prompt in file.read()] == ["question 0", "question 1", "s"]
    written(path, {"resumed_from": 0})
    assert file.read() == ()
