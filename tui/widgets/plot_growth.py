"""A plot that grew by less than can be seen: its steps are labelled anew, and nothing else is drawn. Pure."""

from __future__ import annotations

from array import array
from dataclasses import replace

from trainwiz.core.telemetry.series import Curve
from trainwiz.tui.widgets.drawing import Picture, PlotData
from trainwiz.tui.widgets.plot_labels import step_labels

UNSEEN_DOTS = 0.25
"""Steps that take less than this share of a dot's width change nothing that can be seen."""


def grown_picture(picture: Picture, drawn: PlotData, data: PlotData, dots_across: int) -> Picture | None:
    """`picture`, which shows `drawn`, as a picture of `data`; None where it has to be drawn again.

    A run of 100,000 steps on 100 columns gets a dot's width of news every 500 steps: to draw it anew
    for each step would be most of what a monitor takes.
    """
    scale = picture.scale
    if scale is None or not picture.columns or not _alike(drawn, data):
        return None
    first = picture.first if data.first is None else data.first
    last = data.curve.last_step if data.last is None else data.last
    drawn_last = drawn.curve.last_step
    if last is None or drawn_last is None:
        return None
    unseen = (picture.last - picture.first) / (picture.columns * dots_across) * UNSEEN_DOTS
    if abs(first - picture.first) >= unseen or abs(last - picture.last) >= unseen:
        return None
    news = data.curve.extremes(drawn_last, last)
    if news is not None and not (scale.low <= news[0] and news[1] <= scale.high):
        return None
    labels = [(" " * picture.gutter + step_labels(first, last, picture.columns), "label")]
    return replace(picture, rows=[*picture.rows[:-1], labels])


def _alike(drawn: PlotData, data: PlotData) -> bool:
    """Whether only the end of the curve can be another."""
    same_settings = (drawn.points_name, drawn.logarithmic, drawn.uprights, drawn.first is None, drawn.last is None) == (
        data.points_name,
        data.logarithmic,
        data.uprights,
        data.first is None,
        data.last is None,
    )
    return same_settings and _same(drawn.points, data.points) and _went_on(drawn.curve, data.curve)


def _same(before: Curve, after: Curve) -> bool:
    return before is after or (len(before), before.last_step) == (len(after), after.last_step)


def _went_on(before: Curve, after: Curve) -> bool:
    """Whether `after` is `before` with more points: not another metric, not a run that went back, no new gap."""
    count = len(before.steps)
    return (
        count > 0
        and len(before.bucket_steps) == len(after.bucket_steps)
        and len(before.non_finite_steps) == len(after.non_finite_steps)
        and _equal(before.values, after.values, count)
        and _equal(before.steps, after.steps, count)
        and _equal(before.bucket_sums, after.bucket_sums, len(before.bucket_sums))
    )


def _equal(before: array[float], after: array[float], count: int) -> bool:
    # Arrays would be compared number by number, each as an object: twenty times as long.
    return memoryview(before)[:count] == memoryview(after)[:count]
