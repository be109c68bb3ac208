"""draw_plot: a metric over its steps as rows of coloured text. Pure: no terminal, no clock."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.series import EMPTY_CURVE, Columns, Curve, smooth
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

# What a plot says in words: values at the left, steps below, the legend, the first step that is not a number.

Row = list[tuple[str, str]]
"""Runs of (text, role); roles: raw, line, point, bad, label, legend, cursor."""

LegendParts = list[tuple[str, str]]


MOST_LABELS = 7


def value_labels(scale: Scale, rows: int, canvas_rows: int, glyphs: Glyphs) -> dict[int, str]:
    """Row -> label, at most one for every second row; on a linear scale evenly apart, and two of them where there is room."""
    most = max(3, min(MOST_LABELS, rows // 2))
    sets = [ticks_of(scale, most)] if scale.logarithmic else list(_even_ticks(scale, most))
    found = [_label_rows(scale, ticks, canvas_rows, glyphs) for ticks in sets]
    # One that lost a label would show uneven gaps; where all do, on a logarithmic scale, the rest still helps.
    whole = [labels for labels, ticks in zip(found, sets, strict=True) if len(labels) == len(ticks)]
    labels = max(whole or found, key=len)
    return labels or {0: tick_labels([scale.high])[0]}


def _even_ticks(scale: Scale, most: int) -> Iterator[list[float]]:
    """Round values at even distances, in several densities; of the finer ones also every second."""
    for count in range(most, MOST_LABELS + 1):
        ticks = linear_ticks(scale.low, scale.high, count)
        yield ticks
        # The ones that a coarser step would take: multiples of twice the step.
        if len(ticks) > 1:
            step = ticks[1] - ticks[0]
            yield [tick for tick in ticks if round(tick / step) % 2 == 0]
    yield linear_ticks(scale.low, scale.high, max(1, most - 2))


def _label_rows(scale: Scale, ticks: list[float], canvas_rows: int, glyphs: Glyphs) -> dict[int, str]:
    labels: dict[int, str] = {}
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        row = dot_row(scale, tick, canvas_rows) // glyphs.dots_down
        if row not in labels and row + 1 not in labels and row - 1 not in labels:
            labels[row] = label
    return labels


def dot_row(scale: Scale, value: float, height: int) -> int:
    """The dot row of a value, kept inside the canvas; on a logarithmic scale 0 lies at its bottom."""
    if scale.logarithmic and not scale.linear_below and value <= 0:
        return height - 1
    share = min(1.0, max(0.0, scale.share(value)))
    return round((1.0 - share) * (height - 1))


def step_labels(first: float, last: float, columns: int) -> str:
    """Round steps below their places; the last step is always there, at the right end, and the first where it has room."""
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
    begin = f"{first:,.0f}"
    if len(begin) <= free_until and all(char == " " for char in line[: len(begin) + 2]):
        line[: len(begin)] = begin
    start = max(0, columns - len(end))
    line[start:] = end[: columns - start]
    return "".join(line)


def draw_legend(canvas: DotCanvas, points_name: str | None) -> None:
    """What dots, line and marks are, where it covers nothing."""
    glyphs = canvas.glyphs
    raw, smoothed = tr("raw"), tr("smoothed")
    parts = [
        (f"{raw} ", "legend"),
        (glyphs.raw_sample, "raw"),
        (f"  {smoothed} ", "legend"),
        (glyphs.line_sample, "line"),
    ]
    if points_name is not None:
        parts += [(f"  {points_name} ", "legend"), (glyphs.point, "point")]
    length = sum(cells(text) for text, _ in parts)
    for row in (0, 1, 2, canvas.rows - 1, canvas.rows - 2):
        column = canvas.columns - length - 1
        if canvas.is_free(column - 2, row, length + 2):
            for text, role in parts:
                canvas.text(column, row, text, role)
                column += cells(text)
            return


def gap_columns(curve: Curve, first: float, last: float, columns: int) -> dict[int, tuple[float, int]]:
    """Cell column -> (first step without a finite value, how many)."""
    gaps: dict[int, tuple[float, int]] = {}
    for step in curve.non_finite_steps:
        if first <= step <= last:
            column = min(columns - 1, int((step - first) / (last - first) * columns))
            start, count = gaps.get(column, (step, 0))
            gaps[column] = (start, count + 1)
    return gaps


def draw_gaps(canvas: DotCanvas, gaps: dict[int, tuple[float, int]], line_rows: dict[int, int]) -> None:
    """The mark in each gap at the height of the line; the first gap's step beside it, where there is room."""
    if not gaps:
        return
    glyphs = canvas.glyphs
    middle = canvas.rows // 2
    for column in gaps:
        canvas.text(column, line_rows.get(column, middle), glyphs.bad, "bad")
    column, (step, _) = next(iter(gaps.items()))
    others = sum(count for _, count in gaps.values()) - 1
    words = tr("NaN at {step}", step=f"{step:,.0f}")
    if others:
        words = trn(
            "NaN at {step} and {n} more", "NaN at {step} and {n} more", others, n=f"{others:,}", step=f"{step:,.0f}"
        )
    label = f"{glyphs.bad} {words}"
    length = cells(label)
    height = line_rows.get(column, middle)
    for distance in range(1, canvas.rows):
        for row in (height + distance, height - distance):
            for start in (column, column - length + 1):
                if canvas.is_free(start - 1, row, length + 2) or (
                    start == 0 and canvas.is_free(start, row, length + 1)
                ):
                    canvas.text(start, row, label, "bad")
                    return
    row = 0 if height > canvas.rows // 2 else canvas.rows - 1
    canvas.text(min(column, max(0, canvas.columns - length)), row, label, "bad")


def note_rows(text: str, width: int, height: int) -> list[Row]:
    """A sentence in the middle of the room where a plot would be."""
    rows: list[Row] = [[(" " * width, "label")] for _ in range(height)]
    if height > 0 and width > 0:
        lines = wrap(text, width)[:height]
        for row, line in enumerate(lines, start=(height - len(lines)) // 2):
            rows[row] = [(pad(" " * ((width - cells(line)) // 2) + line, width), "label")]
    return rows


# The cursor of a plot: what a curve says at a step, and which logged step lies beside another. Pure.


@dataclass(frozen=True, slots=True)
class Reading:
    """The value at a logged step; NaN where it was not a number. Of long runs older steps are read in groups."""

    step: float
    value: float
    """The mean, where `points` is more than one."""
    low: float
    high: float
    points: int = 1


def read_at(curve: Curve, step: float) -> Reading | None:
    """What was logged nearest to `step`; None for a curve without values."""
    near = [_nearest(steps, step) for steps in _step_lists(curve)]
    best = min((found for found in near if found is not None), key=lambda found: abs(found - step), default=None)
    if best is None:
        return None
    if (place := _place(curve.non_finite_steps, best)) is not None:
        return Reading(best, math.nan, math.nan, math.nan)
    if (place := _place(curve.steps, best)) is not None:
        value = curve.values[place]
        return Reading(best, value, value, value)
    place = bisect_left(curve.bucket_steps, best)
    mean = curve.bucket_sums[place] / curve.bucket_points
    return Reading(best, mean, curve.bucket_lows[place], curve.bucket_highs[place], curve.bucket_points)


def step_beside(curve: Curve, step: float, by: float) -> float | None:
    """The logged step nearest to `step + by`, but beyond `step` in that direction; None at the end of the curve."""
    beyond: list[float] = []
    for steps in _step_lists(curve):
        if by > 0:
            place = bisect_right(steps, step)
            inside: Sequence[float] = steps[place : place + 1]
        else:
            place = bisect_left(steps, step)
            inside = steps[max(0, place - 1) : place]
        beyond += inside
        near = _nearest(steps, step + by)
        if near is not None and (near > step if by > 0 else near < step):
            beyond.append(near)
    return min(beyond, key=lambda found: abs(found - step - by), default=None)


def _step_lists(curve: Curve) -> Iterator[Sequence[float]]:
    yield curve.bucket_steps
    yield curve.steps
    yield curve.non_finite_steps


def _nearest(steps: Sequence[float], step: float) -> float | None:
    place = bisect_left(steps, step)
    around = steps[max(0, place - 1) : place + 1]
    return min(around, key=lambda found: abs(found - step), default=None)


def _place(steps: Sequence[float], step: float) -> int | None:
    place = bisect_left(steps, step)
    return place if place < len(steps) and steps[place] == step else None


# draw_plot: a metric over its steps as rows of coloured text. Pure: no terminal, no clock.

SMOOTHING = 0.02
"""Reach of the running mean as a share of the plot's width."""
NEAR_START = 0.05
LEAST_WIDTH, LEAST_HEIGHT = 16, 3
TOO_SMALL = mark("no room for the plot")
LEAST_MARK_COLUMNS = 3
"""Where marks would lie closer together than this, one stands for the mean of several."""


@dataclass(frozen=True, slots=True)
class PlotData:
    """What one plot shows. Steps outside of [first, last] are left out; None shows all."""

    curve: Curve = EMPTY_CURVE
    points: Curve = EMPTY_CURVE
    """A second curve of the same unit, drawn as marks (evaluation)."""
    points_name: str = "eval"
    first: float | None = None
    last: float | None = None
    logarithmic: bool = False
    empty_text: str = ""
    uprights: tuple[float, ...] = ()
    """Steps at which a line stands: the cursor, or both ends of a range that is being chosen."""

    def shows_the_same_as(self, other: PlotData) -> bool:
        """Whether a drawing of the one is a drawing of the other. Curves are compared by identity: that is cheap."""
        return (
            self.curve is other.curve
            and self.points is other.points
            and (self.points_name, self.first, self.last, self.logarithmic, self.empty_text, self.uprights)
            == (other.points_name, other.first, other.last, other.logarithmic, other.empty_text, other.uprights)
        )


@dataclass(frozen=True, slots=True)
class Picture:
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
        if not 0 <= column < self.columns:
            return None
        return self.first + (self.last - self.first) * (column + 0.5) / self.columns


def draw_curve(data: PlotData, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The rows of `draw_plot`."""
    return draw_plot(data, width, height, glyphs).rows


def draw_plot(data: PlotData, width: int, height: int, glyphs: Glyphs) -> Picture:
    """`height` rows of `width` cells: labels at the left and below, raw dots, a smoothed line, marks.

    A step without a finite value is a gap in the line, with a mark and its step beside it.
    """
    first, last = shown_steps(data)
    if first is None or last is None:
        return Picture(note_rows(data.empty_text or tr("No values yet."), width, height))
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Picture(note_rows(tr(TOO_SMALL), width, height))
    scale = _scale(data, first, last)
    if scale is None:
        return Picture(note_rows(_no_values(data, first, last), width, height), first=first, last=last)
    rows = height - 1
    labels = value_labels(scale, rows, rows * glyphs.dots_down, glyphs)
    gutter = max(len(label) for label in labels.values()) + 1
    canvas = DotCanvas(width - gutter, rows, glyphs)
    _draw(canvas, data, scale, first, last)
    result: list[Row] = []
    for row in range(rows):
        label = labels.get(row, "")
        result.append([(label.rjust(gutter - 1) + " ", "label"), *canvas.row(row)])
    result.append([(" " * gutter + step_labels(first, last, canvas.columns), "label")])
    return Picture(result, gutter, canvas.columns, first, last, scale)


def _draw(canvas: DotCanvas, data: PlotData, scale: Scale, first: float, last: float) -> None:
    columns = data.curve.columns(first, last, canvas.width)
    _draw_raw(canvas, columns, scale)
    line = smooth(columns.mean, max(1, round(canvas.width * SMOOTHING)))
    gaps = gap_columns(data.curve, first, last, canvas.columns)
    line_rows = _draw_line(canvas, line, scale, gaps)
    for column in gaps:
        canvas.clear_column(column)
    _draw_points(canvas, data.points, scale, first, last)
    draw_gaps(canvas, gaps, line_rows)
    draw_legend(canvas, data.points_name if data.points.last_step is not None else None)
    _draw_uprights(canvas, data, scale, first, last)


def whole_range(data: PlotData) -> tuple[float, float] | None:
    """The first and the last step of all that could be shown; None where nothing was logged."""
    steps = [
        step for curve in (data.curve, data.points) for step in (curve.first_step, curve.last_step) if step is not None
    ]
    steps += [*data.curve.non_finite_steps[:1], *data.curve.non_finite_steps[-1:]]
    return (min(steps), max(steps)) if steps else None


def shown_steps(data: PlotData) -> tuple[float | None, float | None]:
    """The steps at both edges of the drawing."""
    whole = whole_range(data)
    if whole is None:
        return None, None
    last = within_reach(whole[1] if data.last is None else data.last)
    first = data.first
    if first is None:
        # A run that was logged from near its beginning is shown from step 0.
        first = 0.0 if 0 <= whole[0] <= last * NEAR_START else whole[0]
    first = within_reach(first)
    # One more step than 1e16 is the same float.
    return first, last if last - first > abs(first) * 1e-12 + 1e-9 else first + max(1.0, abs(first) * 1e-9)


def _scale(data: PlotData, first: float, last: float) -> Scale | None:
    """None without values. A logarithmic scale of values that are nowhere below 0 begins at the least above it."""
    found = _extremes(data, first, last, positive=False)
    if found is None:
        return None
    if data.logarithmic and found[0] == 0 < found[1]:
        found = _extremes(data, first, last, positive=True) or found
    return make_scale(*found, data.logarithmic)


def _extremes(data: PlotData, first: float, last: float, *, positive: bool) -> tuple[float, float] | None:
    found = [curve.extremes(first, last, positive=positive) for curve in (data.curve, data.points)]
    known = [pair for pair in found if pair is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _no_values(data: PlotData, first: float, last: float) -> str:
    if data.curve.non_finite_steps and not len(data.curve):
        return tr("Never a number: NaN since step {step}.", step=f"{data.curve.non_finite_steps[0]:,.0f}")
    if data.first is not None or data.last is not None:
        return tr("No values between the steps {first} and {last}.", first=f"{first:,.0f}", last=f"{last:,.0f}")
    return data.empty_text or tr("No values yet.")


def _draw_raw(canvas: DotCanvas, columns: Columns, scale: Scale) -> None:
    for x, (low, high) in enumerate(zip(columns.low, columns.high, strict=True)):
        if low is not None and high is not None:
            canvas.raw(x, dot_row(scale, high, canvas.height), dot_row(scale, low, canvas.height))


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
        y = dot_row(scale, value, canvas.height)
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


def _draw_points(canvas: DotCanvas, points: Curve, scale: Scale, first: float, last: float) -> None:
    """Marks in their columns; a dense curve gets a mark for every few columns, at their mean."""
    means = points.columns(first, last, canvas.columns).mean
    if sum(mean is not None for mean in means) * LEAST_MARK_COLUMNS > canvas.columns:
        wide = max(1, canvas.columns // LEAST_MARK_COLUMNS)
        places = {
            int((index + 0.5) * canvas.columns / wide): mean
            for index, mean in enumerate(points.columns(first, last, wide).mean)
        }
    else:
        places = dict(enumerate(means))
    for column, mean in places.items():
        if mean is not None:
            row = dot_row(scale, mean, canvas.height) // canvas.glyphs.dots_down
            canvas.text(column, row, canvas.glyphs.point, "point")


def _draw_uprights(canvas: DotCanvas, data: PlotData, scale: Scale, first: float, last: float) -> None:
    """A line behind the curve at each step, and a mark at the value that was logged there."""
    for step in data.uprights:
        if not first <= step <= last:
            continue
        column = min(canvas.columns - 1, int((step - first) / (last - first) * canvas.columns))
        canvas.upright(column, "cursor")
        reading = read_at(data.curve, step)
        if reading is not None and reading.step == step and reading.value == reading.value:
            row = dot_row(scale, reading.value, canvas.height) // canvas.glyphs.dots_down
            canvas.text(column, row, canvas.glyphs.here, "cursor")
