"""draw_plot: a metric over its steps as rows of coloured text, in braille, block or ASCII dots. Pure: no terminal, no clock."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, Curve, smooth
from trainwiz.tui.text import cells, pad, value_label, wrap
from trainwiz.tui.theme import can_draw

Row = list[tuple[str, str]]
"""Runs of (text, role); roles: raw, line, point, bad, label."""


class PlotData(NamedTuple):
    """What one plot shows. Steps outside of [first, last] are left out; None shows all."""

    curve: Curve = EMPTY_CURVE
    points: Curve = EMPTY_CURVE
    """A second curve of the same unit, drawn as marks (evaluation)."""
    first: float | None = None
    last: float | None = None
    logarithmic: bool = False
    empty_text: str = ""
    name: str = ""
    """Of the metric: another one is never the same curve grown longer."""

    @property
    def whole_range(self) -> tuple[float, float] | None:
        """The first and the last step of all that could be shown; None where nothing was logged."""
        ends = [end for curve in (self.curve, self.points) for end in (curve.first_step, curve.last_step)]
        steps = [*(step for step in ends if step is not None), *self.curve.non_finite_steps]
        return (min(steps), max(steps)) if steps else None


# What a cell is drawn with.

PLOT_VARIABLE = "TRAINWIZ_PLOT"


class Glyphs(NamedTuple):
    """How many dots a cell has, and the character for each set of them."""

    dots_across: int
    dots_down: int
    characters: str
    """By the dots that are set: bit 0 is the upper left one, then down the column, then the next column."""
    line_characters: str
    """The same for the line that lies on top."""
    point: str
    bad: str
    raw_sample: str
    line_sample: str

    def legend(self, points_name: str) -> str:
        """What dots, line and marks are. `points_name`: of the second curve, empty where there is none."""
        shown = f"{tr('raw')} {self.raw_sample}  {tr('smoothed')} {self.line_sample}"
        return f"{shown}  {points_name} {self.point}" if points_name else shown


_BRAILLE_BITS = (1, 2, 4, 64, 8, 16, 32, 128)
_BRAILLE = " " + "".join(
    chr(0x2800 + sum(bit for place, bit in enumerate(_BRAILLE_BITS) if dots >> place & 1)) for dots in range(1, 256)
)
_QUADRANTS = " ▘▖▌▝▀▞▛▗▚▄▙▐▜▟█"
BRAILLE = Glyphs(2, 4, _BRAILLE, _BRAILLE, "◆", "×", "⠂", "⠒⠒")
BLOCK = Glyphs(2, 2, _QUADRANTS, _QUADRANTS, "◆", "×", "▘", "▀▀")
ASCII = Glyphs(1, 2, " '.:", " ***", "o", "x", ".", "*")

GLYPHS: dict[str, Glyphs] = {"braille": BRAILLE, "block": BLOCK, "ascii": ASCII}


def choose_glyphs(ascii_only: bool, environment: Mapping[str, str] = os.environ) -> Glyphs:
    """What TRAINWIZ_PLOT names; else ASCII where nothing else can be drawn; blocks on the Linux
    console, whose fonts have no braille; else braille."""
    wanted = environment.get(PLOT_VARIABLE, "").strip().lower()
    if wanted in GLYPHS:
        return GLYPHS[wanted]
    if ascii_only or not can_draw(environment):
        return ASCII
    return BLOCK if environment.get("TERM") == "linux" else BRAILLE


# Scales, and what stands beside them.

LARGEST, SMALLEST = 1e300, 1e-290
"""Beyond these a float has no room for what is computed from it."""
MOST_LABELS = 7
STEP_LABEL_GAP = 6


class Scale(NamedTuple):
    """Maps values to rows; `low` and `high` are the values at the bottom and at the top."""

    low: float
    high: float
    logarithmic: bool = False

    def row(self, value: float, rows: int) -> int:
        """The row of a value among so many, counted from the top; kept inside. 0 lies at the bottom of each log scale."""
        if self.logarithmic:
            bottom, top = math.log10(self.low), math.log10(self.high)
            share = (math.log10(value) - bottom) / (top - bottom) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return round((1.0 - min(1.0, max(0.0, share))) * (rows - 1))

    def value(self, share: float) -> float:
        """What lies so far up: 0 at the bottom, 1 at the top."""
        if self.logarithmic:
            return float(10 ** (math.log10(self.low) * (1 - share) + math.log10(self.high) * share))
        return self.low * (1 - share) + self.high * share


def within_reach(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def make_scale(low: float, high: float, logarithmic: bool) -> Scale:
    """A scale that shows [low, high]; a flat curve gets room on both sides. Values down to 0 have a linear one only."""
    low, high = within_reach(low), within_reach(high)
    if logarithmic and low > 0:
        low, high = max(low, SMALLEST), max(high, SMALLEST)
        return Scale(low / 1.1, high * 1.1, True) if high / low < 1.001 else Scale(low, high, True)
    if high - low <= max(abs(low), abs(high), SMALLEST) * 1e-9:
        room = abs(high) * 0.05 if abs(high) > SMALLEST else 1.0
        return Scale(low - room, high + room)
    return Scale(low, high)


def value_labels(scale: Scale, rows: int) -> dict[int, str]:
    """Row -> its value: at the top, at the bottom and evenly between, with as many digits as tell them apart."""
    count = max(2, min(MOST_LABELS, rows // 3))
    places = [round(number * (rows - 1) / (count - 1)) for number in range(count)]
    values = [scale.value(1 - place / (rows - 1)) for place in places]
    for digits in range(3, 9):
        labels = [value_label(value, digits) for value in values]
        if len(set(labels)) == count:
            break
    return dict(zip(places, labels, strict=True))


def step_words(step: float) -> str:
    return f"{step:,.0f}" if abs(step) < 1e15 else f"{step:.3g}"


def step_labels(first: float, last: float, columns: int) -> str:
    """Steps below their places: the first, the last, and as many between as have room."""
    longest = max(len(step_words(first)), len(step_words(last)))
    count = (columns + STEP_LABEL_GAP) // (longest + STEP_LABEL_GAP)
    # No step twice.
    count = count if last - first >= count else int(last - first) + 1
    if count < 2:
        return step_words(last)[:columns].rjust(columns)
    line = ""
    for share in (number / (count - 1) for number in range(count)):
        text = step_words(first * (1 - share) + last * share)
        line = line.ljust(round(share * (columns - len(text)))) + text
    return line


class DotCanvas:
    """`columns` x `rows` cells with two layers of dots, of which the line hides the raw ones of its cells, and characters
    above both. Dots count from the top left."""

    def __init__(self, columns: int, rows: int, glyphs: Glyphs) -> None:
        self.columns, self.rows, self.glyphs = columns, rows, glyphs
        self.width, self.height = columns * glyphs.dots_across, rows * glyphs.dots_down
        # One number for each column of dots; its lowest bit is the uppermost dot.
        self.raw, self.line = [0] * self.width, [0] * self.width
        self._text: dict[tuple[int, int], tuple[str, str]] = {}

    @staticmethod
    def dots(top: int, bottom: int) -> int:
        """Those from row `top` to row `bottom`, both included."""
        return (1 << bottom + 1) - (1 << top)

    def text(self, column: int, row: int, text: str, role: str) -> None:
        """Characters of one cell each over whatever is there; what lies outside is cut."""
        for place, character in enumerate(text, start=column):
            self._text[row, place] = (character, role)

    def clear_column(self, column: int) -> None:
        for x in range(column * self.glyphs.dots_across, (column + 1) * self.glyphs.dots_across):
            self.raw[x] = self.line[x] = 0

    def _codes(self, dots: list[int], row: int) -> list[int]:
        """For each cell the dots that are set, as a place among the characters."""
        down = self.glyphs.dots_down
        shift, whole = row * down, (1 << down) - 1
        parts = [column >> shift & whole for column in dots]
        if self.glyphs.dots_across == 1:
            return parts
        return [left | right << down for left, right in zip(parts[::2], parts[1::2], strict=True)]

    def row(self, row: int) -> Iterator[tuple[str, str]]:
        """The row as (text, role) runs."""
        run, run_role = "", "raw"
        for column, (line, raw) in enumerate(zip(self._codes(self.line, row), self._codes(self.raw, row), strict=True)):
            if (row, column) in self._text:
                character, role = self._text[row, column]
            elif line:
                character, role = self.glyphs.line_characters[line], "line"
            elif raw:
                character, role = self.glyphs.characters[raw], "raw"
            else:
                character, role = " ", run_role
            if role != run_role and run:
                yield run, run_role
                run = ""
            run += character
            run_role = role
        yield run, run_role


SMOOTHING = 0.02
"""Reach of the running mean as a share of the plot's width."""
NEAR_START = 0.05
LEAST_WIDTH, LEAST_HEIGHT = 16, 3
TOO_SMALL = mark("no room for the plot")


def draw_plot(data: PlotData, width: int, height: int, glyphs: Glyphs) -> tuple[list[Row], Scale | None]:
    """`height` rows of `width` cells: labels at the left and below, raw dots, a smoothed line, marks; and their scale.

    A step without a finite value is a gap in the line, with a mark and its step beside it. Without values a sentence
    says why, and there is no scale.
    """
    shown = shown_steps(data)
    if shown is None:
        return note_rows(data.empty_text or tr("No values yet."), width, height), None
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return note_rows(tr(TOO_SMALL), width, height), None
    first, last = shown
    scale = _scale(data, first, last)
    if scale is None:
        return note_rows(_no_values(data, first, last), width, height), None
    labels = value_labels(scale, height - 1)
    gutter = max(map(len, labels.values())) + 1
    canvas = DotCanvas(width - gutter, height - 1, glyphs)
    _draw(canvas, data, scale, first, last)
    rows = [[(f"{labels.get(row, ''):>{gutter - 1}} ", "label"), *canvas.row(row)] for row in range(canvas.rows)]
    return [*rows, [(" " * gutter + step_labels(first, last, canvas.columns), "label")]], scale


def note_rows(text: str, width: int, height: int) -> list[Row]:
    """A sentence in the middle of the room where a plot would be."""
    lines = wrap(text, width)[:height] if width > 0 else []
    above = (height - len(lines)) // 2
    lines = [*[""] * above, *lines, *[""] * (height - above - len(lines))]
    return [[(pad(" " * ((width - cells(line)) // 2) + line, width), "label")] for line in lines]


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
        return tr("NaN since step {step}, never a finite value.", step=step_words(data.curve.non_finite_steps[0]))
    return tr("No values between steps {first} and {last}.", first=step_words(first), last=step_words(last))


def _draw(canvas: DotCanvas, data: PlotData, scale: Scale, first: float, last: float) -> None:
    dots_down = canvas.glyphs.dots_down
    columns = data.curve.columns(first, last, canvas.width)
    for x, (low, high) in enumerate(zip(columns.low, columns.high, strict=True)):
        if low is not None and high is not None:
            canvas.raw[x] = canvas.dots(scale.row(high, canvas.height), scale.row(low, canvas.height))
    means = smooth(columns.mean, max(1, round(canvas.width * SMOOTHING)))
    heights = [None if mean is None else scale.row(mean, canvas.height) for mean in means]
    before: int | None = None
    for x, y in enumerate(heights):
        if y is not None:
            start = y if before is None else before
            canvas.line[x] = canvas.dots(min(y, start + 1), max(y, start - 1))
        before = y
    for column, value in enumerate(data.points.columns(first, last, canvas.columns).mean):
        if value is not None:
            canvas.text(column, scale.row(value, canvas.height) // dots_down, canvas.glyphs.point, "point")
    _draw_gaps(canvas, data.curve, heights, first, last)


def _draw_gaps(canvas: DotCanvas, curve: Curve, heights: list[int | None], first: float, last: float) -> None:
    """A mark at the height of the line for each step without a finite value; the first one's step, and how many follow."""
    bad, across = canvas.glyphs.bad, canvas.glyphs.dots_across
    steps = [step for step in curve.non_finite_steps if first <= step <= last]
    places: list[tuple[int, int]] = []
    for step in steps:
        column = min(canvas.columns - 1, int((step - first) / (last - first) * canvas.columns))
        height = heights[column * across]
        places.append((column, canvas.rows // 2 if height is None else height // canvas.glyphs.dots_down))
        canvas.clear_column(column)
        canvas.text(*places[-1], bad, "bad")
    if steps:
        label = f"{bad} NaN {step_words(steps[0])}" + (f" +{len(steps) - 1:,}" if len(steps) > 1 else "")
        # At the edge that the line is further from.
        column, row = places[0]
        start = max(0, min(column, canvas.columns - len(label)))
        canvas.text(start, 0 if row > canvas.rows // 2 else canvas.rows - 1, label, "bad")
