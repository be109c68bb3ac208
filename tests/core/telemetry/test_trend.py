"""Trend: how long what shrinks will last."""

from __future__ import annotations

import pytest
from trainwiz.core.telemetry.peaks import LEAST_SPAN_S, MOST_POINTS, MOST_SPAN_S, Trend
from trainwiz.core.telemetry.words import span_words

from tests.each import each


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


def test_checkpoints_that_replace_each_other_fill_no_disk() -> None:
    sawtooth = [500.0 - 9.0 * (index % 20) for index in range(200)]
    assert trend_of([*sawtooth, 500.0]).lasts_s() is None


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


def test_what_a_start_takes_is_no_pace() -> None:
    """30 of 64 GiB in the first minute, then a breath of noise: nothing will be full in three minutes."""
    start = [64.0 - 5.0 * index for index in range(6)]
    later = [34.0 - 0.0001 * index + 0.01 * (index % 3) for index in range(40)]
    lasts_s = trend_of([*start, *later]).lasts_s()
    assert lasts_s is None or lasts_s > 1e5


def test_a_leak_is_seen_through_the_teeth_of_a_saw() -> None:
    amounts = [10_000.0 - 10 * index - 40 * (index % 7) for index in range(200)]
    assert trend_of(amounts).lasts_s() == pytest.approx(8_000, rel=0.1)


def test_pages_that_are_copied_once_are_judged_by_what_is_left_of_it() -> None:
    """Workers touch all rows once: fast at first, slower and slower. The newest pace counts."""
    amounts = [100.0 - 40.0 * (1 - 0.97**index) for index in range(100)]
    lasts_s = trend_of(amounts).lasts_s()
    assert lasts_s is not None and lasts_s > 2 * 60.0 / 40.0 * 1_000
