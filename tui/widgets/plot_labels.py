"""What a plot says in words: values at the left, steps below, the legend, the first step that is not a number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainwiz.core.language import tr, trn
from trainwiz.core.telemetry.series import Curve
from trainwiz.tui.cells import cells, pad
from trainwiz.tui.widgets.axes import Scale, linear_ticks, tick_labels, ticks_of
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs
from trainwiz.tui.wrapping import wrap

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
