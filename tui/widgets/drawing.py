"""draw_plot: a metric over its steps as rows of coloured text. Pure: no terminal, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.series import EMPTY_CURVE, Columns, Curve
from trainwiz.core.telemetry.smoothing import smooth
from trainwiz.tui.widgets.axes import Scale, make_scale, within_reach
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs
from trainwiz.tui.widgets.plot_cursor import read_at
from trainwiz.tui.widgets.plot_labels import (
    Row,
    dot_row,
    draw_gaps,
    draw_legend,
    gap_columns,
    note_rows,
    step_labels,
    value_labels,
)

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
