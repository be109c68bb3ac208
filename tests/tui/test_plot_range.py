"""The range of steps that a plot shows, as keys, a mouse and typed words change it; and the cursor's readings."""

from __future__ import annotations

import math

import pytest
from trainwiz.core.telemetry.series import EMPTY_CURVE, RAW_POINTS, Curve, Series
from trainwiz.tui.widgets.drawing import read_at, step_beside
from trainwiz.tui.widgets.plot import StepRange, parse_range

from tests.each import each


def curve_of(values: list[float], every: int = 1) -> Curve:
    series = Series()
    for index, value in enumerate(values):
        series.add(index * every, value)
    return series.curve()


@each(
    ("text", "expected"),
    [
        ("all", StepRange()),
        ("", StepRange()),
        ("400-900", StepRange(400, 900)),
        (" 400 900 ", StepRange(400, 900)),
        ("400..900", StepRange(400, 900)),
        ("1,200 - 1.5k", StepRange(1200, 1500)),
        ("400-", StepRange(400, None)),
        ("-900", StepRange(None, 900)),
        ("last 500", StepRange(length=500)),
        ("last 500 steps", StepRange(length=500)),
        ("last 10%", StepRange(share=0.1)),
    ],
)
def test_what_a_user_types(text: str, expected: StepRange) -> None:
    assert parse_range(text, 0, 10_000) == expected


@each(
    ("text", "sentence"),
    [
        ("900-400", "before its last"),
        ("400-400", "before its last"),
        ("20000-", "before its last one; the run has steps 10 to 1,000"),
        ("4e", "Type two steps as 400-900"),
        ("loss", "Type two steps as 400-900"),
        ("last 0", "at least one step"),
        ("-5", "nothing before step 10"),
    ],
)
def test_what_cannot_be_a_range_is_said_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        parse_range(text, 10, 1000)
    assert str(error.value).endswith(".")


def test_a_range_follows_the_run_where_its_end_is_open() -> None:
    assert StepRange(share=0.2).ends(0, 1000) == (800, None)
    assert StepRange(share=0.2).ends(0, 2000) == (1600, None)
    assert StepRange(length=300).ends(0, 2000) == (1700, None)
    assert StepRange(length=300).ends(0, 100) == (0, None)
    assert StepRange(first=400).ends(0, 2000) == (400, None)


def test_narrower_wider_left_and_right() -> None:
    half = StepRange().resized(0.5, 0, 1000)
    assert half.ends(0, 1000) == (500, None)
    about = StepRange().resized(0.5, 0, 1000, about=300)
    assert about == StepRange(150, 650)
    assert about.resized(2, 0, 1000, about=300) == StepRange()
    assert about.moved(-1, 0, 1000) == StepRange(0, 500)
    assert about.moved(1, 0, 1000) == StepRange(400, 900)
    # At the end of the run it follows the run.
    assert about.moved(1, 0, 1000).moved(1, 0, 1000) == StepRange(500, None)
    assert StepRange().moved(1, 0, 1000) == StepRange()


def test_a_range_ends_at_both_ends_of_the_run_and_never_vanishes() -> None:
    narrow = StepRange()
    for _ in range(200):
        narrow = narrow.resized(0.5, 0, 1000, about=999)
    first, last = narrow.ends(0, 1000)
    assert first is not None and first < (1000 if last is None else last) <= 1000


def test_zoom_goes_round() -> None:
    shown = [StepRange()]
    for _ in range(3):
        shown.append(shown[-1].next_zoom())
    assert [item.words() for item in shown] == ["", "last fifth", "last 4 %", ""]
    assert StepRange(100, 200).next_zoom().words() == "last fifth"


def test_the_cursor_reads_what_was_logged() -> None:
    curve = curve_of([3.0, 2.5, math.nan, 2.0], every=10)
    assert read_at(EMPTY_CURVE, 5) is None
    reading = read_at(curve, 12)
    assert reading is not None and (reading.step, reading.value) == (10, 2.5)
    bad = read_at(curve, 19)
    assert bad is not None and bad.step == 20 and math.isnan(bad.value)


def test_old_steps_of_a_long_run_are_read_in_groups() -> None:
    values = [float(index % 4) for index in range(3 * RAW_POINTS)]
    reading = read_at(curve_of(values), 100)
    assert reading is not None and reading.points == 8
    assert (reading.value, reading.low, reading.high) == (1.5, 0, 3)
    newest = read_at(curve_of(values), 1e9)
    assert newest is not None and (newest.step, newest.points) == (3 * RAW_POINTS - 1, 1)


def test_the_cursor_moves_by_logged_steps_and_never_stands_still() -> None:
    curve = curve_of([1.0, math.nan, 1.0, 1.0], every=100)
    assert [step_beside(curve, step, 1.0) for step in (0, 100, 200, 300)] == [100, 200, 300, None]
    assert [step_beside(curve, step, -1.0) for step in (300, 200, 100, 0)] == [200, 100, 0, None]
    assert step_beside(curve, 0, 230.0) == 200
    assert step_beside(curve, 300, -1e9) == 0
