"""draw_curve: a metric over its steps as rows of coloured text. Pure: no terminal, no clock."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, replace

from trainwiz.core.telemetry.series import EMPTY_CURVE, Columns, Curve, smooth
from trainwiz.tui.widgets.axes import Scale, linear_ticks, log_ticks, make_scale, tick_labels
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs

SMOOTHING = 0.02
"""Reach of the running mean as a share of the plot's width."""
NEAR_START = 0.05
LEAST_WIDTH, LEAST_HEIGHT = 16, 3
TOO_SMALL = "no room for the plot"

Row = list[tuple[str, str]]
"""Runs of (text, role); roles: raw, line, point, bad, label, legend."""


@dataclass(frozen=True, slots=True)
class PlotData:
    """What one plot shows. Steps outside of [first, last] are left out; None shows all."""

    curve: Curve = EMPTY_CURVE
    points: Curve = EMPTY_CURVE
    """Few values, drawn as marks (evaluation)."""
    points_name: str = "eval"
    first: float | None = None
    last: float | None = None
    logarithmic: bool = False
    empty_text: str = "No values yet."


def draw_curve(data: PlotData, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """`height` rows of `width` cells: labels at the left and below, raw dots, a smoothed line, marks.

    A step without a finite value is a gap in the line, with a mark and its step beside it.
    """
    first, last = _range(data)
    if first is None or last is None:
        return _note(data, width, height)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return _note(replace(data, empty_text=TOO_SMALL), width, height)
    rows = height - 1
    canvas_rows = rows * glyphs.dots_down
    scale = _scale(data, first, last)
    if scale is None:
        return _note(data, width, height)
    labels = _value_labels(scale, rows, canvas_rows, glyphs)
    gutter = max(len(label) for label in labels.values()) + 1
    canvas = DotCanvas(width - gutter, rows, glyphs)
    columns = data.curve.columns(first, last, canvas.width)
    _draw_raw(canvas, columns, scale)
    line = smooth(columns.mean, max(1, round(canvas.width * SMOOTHING)))
    gaps = _gap_columns(data.curve, first, last, canvas.columns)
    line_rows = _draw_line(canvas, line, scale, gaps)
    for column in gaps:
        canvas.clear_column(column)
    _draw_points(canvas, data.points.columns(first, last, canvas.columns), scale)
    _draw_gaps(canvas, gaps, line_rows, glyphs)
    _draw_legend(canvas, data, glyphs)
    result = []
    for row in range(rows):
        label = labels.get(row, "")
        result.append([(label.rjust(gutter - 1) + " ", "label"), *canvas.row(row)])
    result.append([(" " * gutter + _step_labels(first, last, canvas.columns), "label")])
    return result


def _range(data: PlotData) -> tuple[float | None, float | None]:
    firsts = [step for curve in (data.curve, data.points) if (step := curve.first_step) is not None]
    lasts = [step for curve in (data.curve, data.points) if (step := curve.last_step) is not None]
    firsts += data.curve.non_finite_steps[:1]
    lasts += data.curve.non_finite_steps[-1:]
    if not firsts:
        return None, None
    last = max(lasts) if data.last is None else data.last
    first = data.first
    if first is None:
        # A run that was logged from near its beginning is shown from step 0.
        first = 0.0 if 0 <= min(firsts) <= last * NEAR_START else min(firsts)
    return first, last if last > first else first + 1


def _scale(data: PlotData, first: float, last: float) -> Scale | None:
    """None without values. A logarithmic scale needs values above 0; without any it is linear."""
    for positive in (True, False) if data.logarithmic else (False,):
        found = [curve.extremes(first, last, positive=positive) for curve in (data.curve, data.points)]
        known = [pair for pair in found if pair is not None]
        if known:
            return make_scale(min(low for low, _ in known), max(high for _, high in known), data.logarithmic)
    return None


def _dot(scale: Scale, value: float, height: int) -> int:
    """The dot row of a value, kept inside the canvas."""
    if scale.logarithmic and value <= 0:
        return height - 1
    share = min(1.0, max(0.0, scale.share(value)))
    return round((1.0 - share) * (height - 1))


def _draw_raw(canvas: DotCanvas, columns: Columns, scale: Scale) -> None:
    for x, (low, high) in enumerate(zip(columns.low, columns.high, strict=True)):
        if low is not None and high is not None:
            canvas.raw(x, _dot(scale, high, canvas.height), _dot(scale, low, canvas.height))


def _draw_line(
    canvas: DotCanvas, line: tuple[float | None, ...], scale: Scale, gaps: dict[int, tuple[float, int]]
) -> dict[int, int]:
    """Draws it and returns the cell row of the line in each cell column, gaps included."""
    across = canvas.glyphs.dots_across
    rows: dict[int, int] = {}
    previous: int | None = None
    for x, value in enumerate(line):
        if value is None:
            previous = None
            continue
        y = _dot(scale, value, canvas.height)
        rows[x // across] = y // canvas.glyphs.dots_down
        if x // across in gaps:
            previous = None
            continue
        if previous is None or abs(previous - y) <= 1:
            canvas.line(x, y, y)
        elif previous < y:
            canvas.line(x, previous + 1, y)
        else:
            canvas.line(x, y, previous - 1)
        previous = y
    return rows


def _draw_points(canvas: DotCanvas, columns: Columns, scale: Scale) -> None:
    for column, value in enumerate(columns.mean):
        if value is not None:
            row = _dot(scale, value, canvas.height) // canvas.glyphs.dots_down
            canvas.text(column, row, canvas.glyphs.point, "point")


def _gap_columns(curve: Curve, first: float, last: float, columns: int) -> dict[int, tuple[float, int]]:
    """Cell column -> (first step without a finite value, how many)."""
    gaps: dict[int, tuple[float, int]] = {}
    for step in curve.non_finite_steps:
        if first <= step <= last:
            column = min(columns - 1, int((step - first) / (last - first) * columns))
            start, count = gaps.get(column, (step, 0))
            gaps[column] = (start, count + 1)
    return gaps


def _draw_gaps(
    canvas: DotCanvas, gaps: dict[int, tuple[float, int]], line_rows: dict[int, int], glyphs: Glyphs
) -> None:
    """The mark in each gap at the height of the line; the first gap's step beside it, where there is room."""
    if not gaps:
        return
    middle = canvas.rows // 2
    for column in gaps:
        canvas.text(column, line_rows.get(column, middle), glyphs.bad, "bad")
    column, (step, _) = next(iter(gaps.items()))
    others = sum(count for _, count in gaps.values()) - 1
    label = f"{glyphs.bad} NaN at {step:,.0f}" + (f" and {others:,} more" if others else "")
    height = line_rows.get(column, middle)
    for distance in range(1, canvas.rows):
        for row in (height + distance, height - distance):
            for start in (column, column - len(label) + 1):
                if canvas.is_free(start - 1, row, len(label) + 2) or (
                    start == 0 and canvas.is_free(start, row, len(label) + 1)
                ):
                    canvas.text(start, row, label, "bad")
                    return
    row = 0 if height > canvas.rows // 2 else canvas.rows - 1
    canvas.text(min(column, max(0, canvas.columns - len(label))), row, label, "bad")


def _draw_legend(canvas: DotCanvas, data: PlotData, glyphs: Glyphs) -> None:
    parts = [("raw ", "legend"), (glyphs.raw_sample, "raw"), ("  smoothed ", "legend"), (glyphs.line_sample, "line")]
    if data.points.last_step is not None:
        parts += [(f"  {data.points_name} ", "legend"), (glyphs.point, "point")]
    length = sum(len(text) for text, _ in parts)
    for row in (0, 1, 2, canvas.rows - 1, canvas.rows - 2):
        column = canvas.columns - length - 1
        if canvas.is_free(column - 2, row, length + 2):
            for text, role in parts:
                canvas.text(column, row, text, role)
                column += len(text)
            return


def _value_labels(scale: Scale, rows: int, canvas_rows: int, glyphs: Glyphs) -> dict[int, str]:
    """Row -> label, at most one for every second row."""
    count = max(3, min(7, rows // 2))
    ticks = (log_ticks if scale.logarithmic else linear_ticks)(scale.low, scale.high, count)
    labels: dict[int, str] = {}
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        row = _dot(scale, tick, canvas_rows) // glyphs.dots_down
        if row not in labels and row + 1 not in labels and row - 1 not in labels:
            labels[row] = label
    return labels or {0: tick_labels([scale.high])[0]}


def _step_labels(first: float, last: float, columns: int) -> str:
    """Round steps below their places; the last step is always there, at the right end."""
    line = [" "] * columns
    end = f"{last:,.0f}"
    free_until = columns - len(end) - 2
    count = max(2, columns // 14)
    for tick in linear_ticks(first, last, count):
        if tick != math.floor(tick):
            continue
        label = f"{tick:,.0f}"
        place = int((tick - first) / (last - first) * (columns - 1))
        start = max(0, place - len(label) // 2)
        if start + len(label) <= free_until and all(char == " " for char in line[max(0, start - 2) : start]):
            line[start : start + len(label)] = label
    start = max(0, columns - len(end))
    line[start:] = end[: columns - start]
    return "".join(line)


def _note(data: PlotData, width: int, height: int) -> list[Row]:
    text = data.empty_text
    if data.curve.non_finite_steps and not len(data.curve):
        text = f"Never a number: NaN since step {data.curve.non_finite_steps[0]:,.0f}."
    rows: list[Row] = [[(" " * width, "label")] for _ in range(height)]
    if height > 0 and width > 0:
        lines = textwrap.wrap(text, width)[:height]
        for row, line in enumerate(lines, start=(height - len(lines)) // 2):
            rows[row] = [(line.center(width), "label")]
    return rows
