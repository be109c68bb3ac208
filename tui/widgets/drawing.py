"""draw_plot: a metric over its steps as rows of coloured text. Pure: no terminal, no clock."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, Curve, smooth
from trainwiz.tui.text import cells, pad, wrap
from trainwiz.tui.widgets.canvas import (
    DotCanvas,
    Glyphs,
    Scale,
    linear_ticks,
    make_scale,
    tick_labels,
    ticks_of,
    within_reach,
)

Row = list[tuple[str, str]]
"""Runs of (text, role); roles: raw, line, point, bad, label, legend, cursor."""

# What a plot shows, and what was drawn of it.


class PlotData(NamedTuple):
    """What one plot shows. Steps outside of [first, last] are left out; None shows all."""

    curve: Curve = EMPTY_CURVE
    points: Curve = EMPTY_CURVE
    """A second curve of the same unit, drawn as marks (evaluation)."""
    points_name: str = "eval"
    first: float | None = None
    last: float | None = None
    logarithmic: bool = False
    empty_text: str = ""
    cursor: float | None = None
    """The step at which a line stands."""
    name: str = ""
    """Of the metric: another one is never the same curve grown longer."""

    @property
    def whole_range(self) -> tuple[float, float] | None:
        """The first and the last step of all that could be shown; None where nothing was logged."""
        ends = [end for curve in (self.curve, self.points) for end in (curve.first_step, curve.last_step)]
        steps = [*(step for step in ends if step is not None), *self.curve.non_finite_steps]
        return (min(steps), max(steps)) if steps else None


class Picture(NamedTuple):
    """A drawn plot, and where its steps lie: from column `gutter` on, `first` at its left edge."""

    rows: list[Row]
    gutter: int = 0
    columns: int = 0
    first: float = 0.0
    last: float = 0.0
    scale: Scale | None = None

    def step_at(self, x: int) -> float | None:
        """The step in the middle of a cell column; None outside of the plot."""
        column = x - self.gutter
        inside = 0 <= column < self.columns
        return self.first + (self.last - self.first) * (column + 0.5) / self.columns if inside else None


# The cursor of a plot: what a curve says at a step, and which logged step lies beside another.


class Reading(NamedTuple):
    """The value at a logged step; NaN where it was not a number. Steps of very long runs are read in groups."""

    step: float
    value: float
    """The mean, where `points` is more than one."""
    low: float
    high: float
    points: int = 1


def read_at(curve: Curve, step: float) -> Reading | None:
    """What was logged nearest to `step`; None for a curve without values."""
    lists = (curve.non_finite_steps, curve.steps)
    near = [
        (abs(steps[place] - step), kind, place) for kind, steps in enumerate(lists) for place in _around(steps, step)
    ]
    if not near:
        return None
    _, kind, place = min(near)
    found = lists[kind][place]
    if not kind:
        return Reading(found, math.nan, math.nan, math.nan)
    points = int(curve.counts[place])
    return Reading(found, curve.sums[place] / points, curve.lows[place], curve.highs[place], points)


def step_beside(curve: Curve, step: float, by: float) -> float | None:
    """The logged step nearest to `step + by`, but beyond `step` in that direction; None at the end of the curve."""
    lists = (curve.non_finite_steps, curve.steps)
    near = [steps[place] for steps in lists for aim in (step, step + by) for place in _around(steps, aim)]
    beyond = [found for found in near if (found - step) * by > 0]
    return min(beyond, key=lambda found: abs(found - step - by), default=None)


def _around(steps: Sequence[float], step: float) -> range:
    """The places of the steps on both sides of a step, and of the step itself."""
    return range(max(0, bisect_left(steps, step) - 1), min(len(steps), bisect_right(steps, step) + 1))


# What a plot says in words: values at the left, steps below, the legend, the first step that is not a number.

MOST_LABELS = 7


def value_labels(scale: Scale, rows: int, canvas_rows: int, glyphs: Glyphs) -> dict[int, str]:
    """Row -> label, at most one for every second row; on a linear scale evenly apart, and two of them where there is room."""
    most = max(3, min(MOST_LABELS, rows // 2))
    sets = [ticks_of(scale, most)] if scale.logarithmic else list(_even_ticks(scale, most))
    found = [_label_rows(scale, ticks, canvas_rows, glyphs) for ticks in sets]
    # One that lost a label would show uneven gaps; where all do, on a logarithmic scale, the rest still helps.
    whole = [labels for labels, ticks in zip(found, sets, strict=True) if len(labels) == len(ticks)]
    return max(whole or found, key=len) or {0: tick_labels([scale.high])[0]}


def _even_ticks(scale: Scale, most: int) -> Iterator[list[float]]:
    """Round values at even distances, in several densities; of the finer ones also every second."""
    for count in (*range(most, MOST_LABELS + 1), max(1, most - 2)):
        ticks = linear_ticks(scale.low, scale.high, count)
        yield ticks
        # The ones that a coarser step would take: multiples of twice the step.
        if len(ticks) > 1:
            step = ticks[1] - ticks[0]
            yield [tick for tick in ticks if round(tick / step) % 2 == 0]


def _label_rows(scale: Scale, ticks: list[float], canvas_rows: int, glyphs: Glyphs) -> dict[int, str]:
    labels: dict[int, str] = {}
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        row = scale.row(tick, canvas_rows) // glyphs.dots_down
        if not {row - 1, row, row + 1} & labels.keys():
            labels[row] = label
    return labels


def step_labels(first: float, last: float, columns: int) -> str:
    """Round steps below their places; the last step is always there, at the right end, and the first where it has room."""
    line, end = [" "] * columns, f"{last:,.0f}"
    free_until = columns - len(end) - 2
    ticks = [tick for tick in linear_ticks(first, last, max(2, columns // 14)) if tick == math.floor(tick)]
    for tick in (*ticks, first):
        label = f"{tick:,.0f}"
        start = max(0, int((tick - first) / (last - first) * (columns - 1)) - len(label) // 2)
        before = line[max(0, start - 2) : start] if tick != first else line[: len(label) + 2]
        if start + len(label) <= free_until and set(before) <= {" "}:
            line[start : start + len(label)] = label
    start = max(0, columns - len(end))
    line[start:] = end[: columns - start]
    return "".join(line)


def draw_legend(canvas: DotCanvas, points_name: str | None) -> None:
    """What dots, line and marks are, where it covers nothing."""
    glyphs = canvas.glyphs
    parts = [(f"{tr('raw')} ", "legend"), (glyphs.raw_sample, "raw")]
    parts += [(f"  {tr('smoothed')} ", "legend"), (glyphs.line_sample, "line")]
    if points_name is not None:
        parts += [(f"  {points_name} ", "legend"), (glyphs.point, "point")]
    length = sum(cells(text) for text, _ in parts)
    column = canvas.columns - length - 1
    for row in (0, 1, 2, canvas.rows - 1, canvas.rows - 2):
        if canvas.is_free(column - 2, row, length + 2):
            for text, role in parts:
                canvas.text(column, row, text, role)
                column += cells(text)
            return


def gap_columns(curve: Curve, first: float, last: float, columns: int) -> dict[int, list[float]]:
    """Cell column -> the steps without a finite value."""
    gaps: dict[int, list[float]] = {}
    for step in curve.non_finite_steps:
        if first <= step <= last:
            gaps.setdefault(_column(step, first, last, columns), []).append(step)
    return gaps


def _column(step: float, first: float, last: float, columns: int) -> int:
    return min(columns - 1, int((step - first) / (last - first) * columns))


def draw_gaps(canvas: DotCanvas, gaps: dict[int, list[float]], line_rows: dict[int, int]) -> None:
    """The mark in each gap at the height of the line; the first gap's step at the upper or lower edge."""
    if not gaps:
        return
    bad, middle = canvas.glyphs.bad, canvas.rows // 2
    for column in gaps:
        canvas.text(column, line_rows.get(column, middle), bad, "bad")
    column, (step, *_) = next(iter(gaps.items()))
    others = sum(map(len, gaps.values())) - 1
    words = tr("NaN at {step}", step=f"{step:,.0f}")
    if others:
        words = trn(
            "NaN at {step} and {n} more", "NaN at {step} and {n} more", others, n=f"{others:,}", step=f"{step:,.0f}"
        )
    label = f"{bad} {words}"
    length, height = cells(label), line_rows.get(column, middle)
    # At the edge that the line is further from.
    start, row = min(column, max(0, canvas.columns - length)), 0 if height > middle else canvas.rows - 1
    canvas.text(start, row, label, "bad")


def note_rows(text: str, width: int, height: int) -> list[Row]:
    """A sentence in the middle of the room where a plot would be."""
    lines = wrap(text, width)[:height] if width > 0 else []
    above = (height - len(lines)) // 2
    lines = [*[""] * above, *lines, *[""] * (height - above - len(lines))]
    return [[(pad(" " * ((width - cells(line)) // 2) + line, width), "label")] for line in lines]


SMOOTHING = 0.02
"""Reach of the running mean as a share of the plot's width."""
NEAR_START = 0.05
LEAST_WIDTH, LEAST_HEIGHT = 16, 3
TOO_SMALL = mark("no room for the plot")
LEAST_MARK_COLUMNS = 3
"""Where marks would lie closer together than this, one stands for the mean of several."""


def draw_plot(data: PlotData, width: int, height: int, glyphs: Glyphs) -> Picture:
    """`height` rows of `width` cells: labels at the left and below, raw dots, a smoothed line, marks.

    A step without a finite value is a gap in the line, with a mark and its step beside it.
    """
    shown = shown_steps(data)
    if shown is None:
        return Picture(note_rows(data.empty_text or tr("No values yet."), width, height))
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Picture(note_rows(tr(TOO_SMALL), width, height))
    first, last = shown
    scale = _scale(data, first, last)
    if scale is None:
        return Picture(note_rows(_no_values(data, first, last), width, height), first=first, last=last)
    rows = height - 1
    labels = value_labels(scale, rows, rows * glyphs.dots_down, glyphs)
    gutter = max(len(label) for label in labels.values()) + 1
    canvas = DotCanvas(width - gutter, rows, glyphs)
    _draw(canvas, data, scale, first, last)
    drawn = [[(labels.get(row, "").rjust(gutter - 1) + " ", "label"), *canvas.row(row)] for row in range(rows)]
    drawn.append([(" " * gutter + step_labels(first, last, canvas.columns), "label")])
    return Picture(drawn, gutter, canvas.columns, first, last, scale)


def shown_steps(data: PlotData) -> tuple[float, float] | None:
    """The steps at both edges of the drawing."""
    if data.whole_range is None:
        return None
    begin, end = data.whole_range
    last = within_reach(end if data.last is None else data.last)
    # A run that was logged from near its beginning is shown from step 0.
    begin = 0.0 if 0 <= begin <= last * NEAR_START else begin
    first = within_reach(begin if data.first is None else data.first)
    # One more step than 1e16 is the same float.
    return first, last if last - first > abs(first) * 1e-12 + 1e-9 else first + max(1.0, abs(first) * 1e-9)


def _scale(data: PlotData, first: float, last: float) -> Scale | None:
    """None without values. A logarithmic scale of values that are nowhere below 0 begins at the least above it."""
    for positive in (False, True):
        found = [curve.extremes(first, last, positive=positive) for curve in (data.curve, data.points)]
        known = [pair for pair in found if pair is not None]
        if not known:
            return None
        low, high = min(low for low, _ in known), max(high for _, high in known)
        if not data.logarithmic or low != 0 or high <= 0:
            break
    return make_scale(low, high, data.logarithmic)


def _no_values(data: PlotData, first: float, last: float) -> str:
    if data.curve.non_finite_steps and not len(data.curve):
        return tr("NaN since step {step}, never a finite value.", step=f"{data.curve.non_finite_steps[0]:,.0f}")
    if data.first is not None or data.last is not None:
        return tr("No values between steps {first} and {last}.", first=f"{first:,.0f}", last=f"{last:,.0f}")
    return data.empty_text or tr("No values yet.")


def _draw(canvas: DotCanvas, data: PlotData, scale: Scale, first: float, last: float) -> None:
    columns = data.curve.columns(first, last, canvas.width)
    for x, (low, high) in enumerate(zip(columns.low, columns.high, strict=True)):
        if low is not None and high is not None:
            canvas.raw(x, scale.row(high, canvas.height), scale.row(low, canvas.height))
    line = smooth(columns.mean, max(1, round(canvas.width * SMOOTHING)))
    gaps = gap_columns(data.curve, first, last, canvas.columns)
    line_rows = _draw_line(canvas, line, scale, gaps)
    for column in gaps:
        canvas.clear_column(column)
    _draw_points(canvas, data.points, scale, first, last)
    draw_gaps(canvas, gaps, line_rows)
    draw_legend(canvas, data.points_name if data.points.last_step is not None else None)
    # A line behind the curve, and a mark at the value that was logged there.
    if data.cursor is not None and first <= data.cursor <= last:
        column = _column(data.cursor, first, last, canvas.columns)
        canvas.upright(column, "cursor")
        reading = read_at(data.curve, data.cursor)
        if reading is not None and reading.step == data.cursor and reading.value == reading.value:
            row = scale.row(reading.value, canvas.height) // canvas.glyphs.dots_down
            canvas.text(column, row, canvas.glyphs.here, "cursor")


def _draw_line(
    canvas: DotCanvas, line: Sequence[float | None], scale: Scale, gaps: dict[int, list[float]]
) -> dict[int, int]:
    """Draws it and returns the cell row of the line in each cell column, gaps included."""
    rows: dict[int, int] = {}
    before: int | None = None
    for x, value in enumerate(line):
        y, column = None, x // canvas.glyphs.dots_across
        if value is not None:
            y = scale.row(value, canvas.height)
            rows[column] = y // canvas.glyphs.dots_down
            if column in gaps:
                y = None
            elif before is None or abs(before - y) <= 1:
                canvas.line(x, y, y)
            else:
                canvas.line(x, min(y, before + 1), max(y, before - 1))
        before = y
    return rows


def _draw_points(canvas: DotCanvas, points: Curve, scale: Scale, first: float, last: float) -> None:
    """Marks in their columns; a dense curve gets a mark for every few columns, at their mean."""
    count = canvas.columns
    means = points.columns(first, last, count).mean
    if sum(mean is not None for mean in means) * LEAST_MARK_COLUMNS > count:
        count = max(1, canvas.columns // LEAST_MARK_COLUMNS)
        means = points.columns(first, last, count).mean
    for place, mean in enumerate(means):
        if mean is not None:
            row = scale.row(mean, canvas.height) // canvas.glyphs.dots_down
            canvas.text(int((place + 0.5) * canvas.columns / count), row, canvas.glyphs.point, "point")
