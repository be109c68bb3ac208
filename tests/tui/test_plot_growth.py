"""A plot that grew by less than can be seen is labelled anew; anything that could be seen is drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from trainwiz.core.telemetry.series import Curve, Series
from trainwiz.tui.widgets.canvas import BRAILLE
from trainwiz.tui.widgets.drawing import PlotData, draw_plot
from trainwiz.tui.widgets.plot import grown_picture

WIDTH, HEIGHT = 100, 20


def series_of(points: int, height: float = 1.0) -> Series:
    series = Series()
    for step in range(points):
        series.add(step, height * (2 + math.sin(step / 500)))
    return series


def grown_by(series: Series, *values: float, start: PlotData | None = None) -> tuple[list[str], list[str]] | None:
    """Rows after growing and rows drawn from scratch; None where growing asks for a drawing."""
    drawn = start or PlotData(series.curve())
    picture = draw_plot(drawn, WIDTH, HEIGHT, BRAILLE)
    step = series.last_step or 0.0
    for number, value in enumerate(values, start=1):
        series.add(step + number, value)
    data = replace(drawn, curve=series.curve())
    grown = grown_picture(picture, drawn, data, BRAILLE.dots_across)
    if grown is None:
        return None
    return [
        ["".join(text for text, _ in row) for row in rows]
        for rows in (grown.rows, draw_plot(data, WIDTH, HEIGHT, BRAILLE).rows)
    ]  # type: ignore[return-value]


def test_a_step_among_many_gives_new_labels_and_the_same_dots() -> None:
    rows = grown_by(series_of(20_000), 2.0)
    assert rows is not None
    grown, fresh = rows
    assert grown[-1] == fresh[-1] and "20,000" in grown[-1]
    # Where the edge of a column moves over a point, a dot may lie in the cell beside.
    moved = sum(a != b for old, new in zip(grown, fresh, strict=True) for a, b in zip(old, new, strict=True))
    assert moved < 0.03 * WIDTH * HEIGHT


@pytest.mark.parametrize(
    ("points", "values"),
    [
        (50, (2.0,)),  # a step is as wide as a dot
        (20_000, (99.0,)),  # above the scale
        (20_000, (math.nan,)),  # a new gap
        (20_000, tuple([2.0] * 100)),  # many steps
    ],
)
def test_what_could_be_seen_is_drawn(points: int, values: tuple[float, ...]) -> None:
    assert grown_by(series_of(points), *values) is None


def test_another_metric_with_the_same_steps_is_drawn() -> None:
    drawn = PlotData(series_of(20_000).curve())
    picture = draw_plot(drawn, WIDTH, HEIGHT, BRAILLE)
    other: Curve = series_of(20_000, 0.9999).curve()
    assert grown_picture(picture, drawn, PlotData(other), BRAILLE.dots_across) is None


def test_another_scale_range_or_cursor_is_drawn() -> None:
    curve = series_of(20_000).curve()
    drawn = PlotData(curve)
    picture = draw_plot(drawn, WIDTH, HEIGHT, BRAILLE)
    for changed in (
        replace(drawn, logarithmic=True),
        replace(drawn, first=100.0, last=500.0),
        replace(drawn, uprights=(7.0,)),
        replace(drawn, points=series_of(5).curve()),
    ):
        assert grown_picture(picture, drawn, changed, BRAILLE.dots_across) is None


def test_small_steps_do_not_add_up_unseen() -> None:
    series = series_of(20_000)
    drawn = PlotData(series.curve())
    picture = draw_plot(drawn, WIDTH, HEIGHT, BRAILLE)
    taken = 0
    while True:
        series.add(20_000 + taken, 2.0)
        data = PlotData(series.curve())
        if grown_picture(picture, drawn, data, BRAILLE.dots_across) is None:
            break
        taken += 1
    assert 5 < taken <= 20_000 / (picture.columns * BRAILLE.dots_across) * 0.25 + 1
