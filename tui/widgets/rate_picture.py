"""rate_picture: the learning rate over the steps as rows of coloured text. Pure: no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.tui.widgets.axes import Scale, value_label
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs
from trainwiz.tui.widgets.plot_labels import Row, dot_row

if TYPE_CHECKING:
    from trainwiz.core.export.rates import RateSchedule

LEAST_GAP = 2
"""Cells between two labels below the curve."""


def curve_rows(schedule: RateSchedule, columns: int, rows: int, glyphs: Glyphs) -> list[Row]:
    """The curve alone, one value for each column of dots, from 0 at the bottom to the highest rate at the top."""
    canvas = DotCanvas(columns, rows, glyphs)
    scale = Scale(0.0, schedule.highest or 1.0)
    # The last step that is taken has the rate of all the steps before it being done.
    reach = schedule.steps - 1
    before: int | None = None
    for x in range(canvas.width):
        rate = schedule.at(round(reach * x / max(1, canvas.width - 1)))
        y = dot_row(scale, rate, canvas.height)
        top, bottom = (y, y) if before is None else (min(y, before), max(y, before))
        canvas.line(x, top, bottom)
        before = y
    return [list(canvas.row(row)) for row in range(rows)]


def rate_picture(schedule: RateSchedule, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """`height` rows of `width` cells: rates at the left, the steps of warm-up and end below. Needs 24 x 3 cells."""
    rows = height - 1
    labels = {0: value_label(schedule.highest), rows - 1: "0"}
    gutter = max(map(len, labels.values())) + 1
    columns = width - gutter
    picture: list[Row] = []
    for row, curve in enumerate(curve_rows(schedule, columns, rows, glyphs)):
        picture.append([(labels.get(row, "").rjust(gutter - 1) + " ", "label"), *curve])
    picture.append([(" " * gutter + _step_line(schedule, columns), "label")])
    return picture


def _step_line(schedule: RateSchedule, columns: int) -> str:
    """0, the end of the warm-up and the last step, each beneath its place, as far as there is room."""
    line = [" "] * columns
    marks = [(0, 0), (schedule.steps, columns - 1)]
    if schedule.kind != "constant" and 0 < schedule.warmup_steps < schedule.steps:
        marks.append((schedule.warmup_steps, round(schedule.warmup_steps / schedule.steps * (columns - 1))))
    for step, place in marks:
        text = f"{step:,}"
        start = min(max(0, place - len(text) // 2), columns - len(text))
        if start >= 0 and all(cell == " " for cell in line[max(0, start - LEAST_GAP) : start + len(text) + LEAST_GAP]):
            line[start : start + len(text)] = text
    return "".join(line)
