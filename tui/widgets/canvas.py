"""DotCanvas: a grid of dots drawn with braille, block or ASCII characters; and its axes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from trainwiz.core.language import tr
from trainwiz.tui.text import cells
from trainwiz.tui.theme import can_draw

# Axes: round ticks and short labels for linear and logarithmic scales.

LARGE = 1e4
LARGE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
"""From LARGE on."""


LARGEST, SMALLEST = 1e300, 1e-290
"""Beyond these a float has no room for what is computed from it."""
SYMMETRIC_DECADES = 3
"""A logarithmic scale of values on both sides of 0 is linear below the largest one divided by 10 to this power."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to dot rows; `low` and `high` are the values at the bottom and at the top."""

    low: float
    high: float
    logarithmic: bool = False
    linear_below: float = 0.0
    """Above 0 on a symmetric logarithmic scale: values nearer to 0 than this are spread evenly."""

    def share(self, value: float) -> float:
        """0 at the bottom, 1 at the top; outside of [0, 1] for values outside."""
        bottom, top = self._bent(self.low), self._bent(self.high)
        return (self._bent(value) - bottom) / (top - bottom)

    def _bent(self, value: float) -> float:
        if self.linear_below:
            return math.copysign(math.log10(1 + abs(value) / self.linear_below), value)
        return math.log10(value) if self.logarithmic else value


def within_reach(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def make_scale(low: float, high: float, logarithmic: bool) -> Scale:
    """A scale that shows [low, high] with a little air; a flat curve gets room on both sides.

    A logarithmic one that has to show values below 0 is symmetric about 0.
    """
    low, high = within_reach(low), within_reach(high)
    if logarithmic and low > 0:
        low, high = max(low, SMALLEST), max(high, SMALLEST)
        if high / low < 1.001:
            return Scale(low / 1.1, high * 1.1, True)
        return Scale(low, high, True)
    span = high - low
    if span <= max(abs(low), abs(high), SMALLEST) * 1e-9:
        room = abs(high) * 0.05 if abs(high) > SMALLEST else 1.0
        return Scale(low - room, high + room)
    if logarithmic:
        return Scale(low, high, True, max(abs(low), abs(high)) / 10.0**SYMMETRIC_DECADES)
    return Scale(low, high)


def ticks_of(scale: Scale, count: int) -> list[float]:
    """At most about `count` round values inside the scale, from below."""
    if scale.linear_below:
        return symmetric_ticks(scale, count)
    return (log_ticks if scale.logarithmic else linear_ticks)(scale.low, scale.high, count)


def round_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 5 x 10^n that cuts `span` into at most `count` parts."""
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if factor * power >= rough * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Round values inside [low, high], at most about `count`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    step = round_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, min(last, first + 4 * count) + 1)]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten inside [low, high], with 2 and 5 between them where there is room; few decades give linear ticks."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1,)):
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if 2 <= len(ticks) <= count + 1:
            return ticks
    if len(ticks) < 2:
        return linear_ticks(low, high, count)
    stride = math.ceil(len(ticks) / count)
    return ticks[::stride]


def symmetric_ticks(scale: Scale, count: int) -> list[float]:
    """0 and powers of ten on both sides of it, from the largest down; a narrow range gets linear ones."""
    largest = math.floor(math.log10(max(abs(scale.low), abs(scale.high))))
    powers = [10.0**power for power in range(largest, largest - SYMMETRIC_DECADES, -1)]
    ticks: list[float] = []
    for tick in (0.0, *(sign * power for power in powers for sign in (1.0, -1.0))):
        if scale.low <= tick <= scale.high and len(ticks) < count:
            ticks.append(tick)
    return sorted(ticks) if len(ticks) >= 2 else linear_ticks(scale.low, scale.high, count)


def tick_labels(ticks: list[float]) -> list[str]:
    """The ticks as text, all with the same number of decimals."""
    if not ticks:
        return []
    if len(ticks) == 1:
        # No gap says how many decimals matter.
        return [value_label(ticks[0])]
    largest = max(abs(tick) for tick in ticks)
    gap = min((b - a for a, b in pairwise(ticks) if b > a), default=largest or 1.0)
    if largest >= LARGE:
        size, unit = next((size, unit) for size, unit in LARGE_UNITS if largest >= size)
        if largest < 1e15:
            return ["0" if tick == 0 else f"{tick / size:.{_decimals(gap / size)}f}{unit}" for tick in ticks]
        return ["0" if tick == 0 else short_exponent(f"{tick:.{_digits(tick, gap)}e}") for tick in ticks]
    if largest < 1e-2:
        return ["0" if tick == 0 else short_exponent(f"{tick:.{_digits(tick, gap)}e}") for tick in ticks]
    return [f"{tick:.{_decimals(gap)}f}" for tick in ticks]


def short_exponent(text: str) -> str:
    """ "2.4e-04" as "2.4e-4"."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text


def value_label(value: float) -> str:
    """One value, short: four significant digits, also where the last ones are 0, so that a column keeps its width."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return tr("infinite") if value > 0 else tr("−infinite")
    size = abs(value)
    if size >= LARGE:
        for unit_size, unit in LARGE_UNITS:
            if size >= unit_size:
                return f"{value / unit_size:.2f}{unit}" if size < 1e15 else short_exponent(f"{value:.2e}")
    if 0 < size < 1e-2:
        return short_exponent(f"{value:.1e}")
    if size >= 999.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:#.4g}" if size >= 1 else f"{value:.3f}"


def _decimals(gap: float) -> int:
    return max(0, min(8, -math.floor(math.log10(gap) + 1e-9)))


def _digits(tick: float, gap: float) -> int:
    return max(0, min(4, math.floor(math.log10(abs(tick)) + 1e-9) - math.floor(math.log10(gap) + 1e-9)))


# DotCanvas: a grid of dots drawn with braille, block or ASCII characters, one colour a cell.

GlyphName = Literal["braille", "block", "ascii"]

PLOT_VARIABLE = "TRAINWIZ_PLOT"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """How many dots a cell has, and the character for each set of them."""

    name: GlyphName
    dots_across: int
    dots_down: int
    bits: tuple[tuple[int, ...], ...]
    """bits[x][y] is the bit of the dot in column x and row y of a cell."""
    characters: str
    """By the sum of the bits of the dots that are set."""
    line_characters: str
    """The same for the line that lies on top."""
    point: str
    bad: str
    raw_sample: str
    line_sample: str
    upright: str = "│"
    """The line of a cursor."""
    here: str = "●"
    """The value at the cursor."""

    def span(self, x: int, top: int, bottom: int) -> int:
        """Bits of the dots `top` to `bottom` (both included) in column `x` of a cell."""
        return sum(self.bits[x][top : bottom + 1])


_BRAILLE = "".join(chr(0x2800 + bits) for bits in range(256))
BRAILLE = Glyphs(
    "braille", 2, 4, ((1, 2, 4, 64), (8, 16, 32, 128)), " " + _BRAILLE[1:], " " + _BRAILLE[1:], "◆", "×", "⠂", "⠒⠒"
)
_QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
BLOCK = Glyphs("block", 2, 2, ((1, 4), (2, 8)), _QUADRANTS, _QUADRANTS, "◆", "×", "▘", "▀▀")
ASCII = Glyphs("ascii", 1, 2, ((1, 2),), " '.:", " ***", "o", "x", ".", "*", "|", "@")

GLYPHS: dict[str, Glyphs] = {"braille": BRAILLE, "block": BLOCK, "ascii": ASCII}


def choose_glyphs(ascii_only: bool, environment: Mapping[str, str] | None = None) -> Glyphs:
    """What TRAINWIZ_PLOT names; else ASCII where nothing else can be drawn; blocks on the Linux
    console, whose fonts have no braille; else braille."""
    environment = os.environ if environment is None else environment
    wanted = environment.get(PLOT_VARIABLE, "").strip().lower()
    if wanted in GLYPHS:
        return GLYPHS[wanted]
    if ascii_only or not can_draw(environment):
        return ASCII
    return BLOCK if environment.get("TERM") == "linux" else BRAILLE


class DotCanvas:
    """`columns` x `rows` cells with two layers: raw dots, and a line that hides the dots of its cells.
    Dots count from the top left. Text lies above both."""

    def __init__(self, columns: int, rows: int, glyphs: Glyphs) -> None:
        self.columns = columns
        self.rows = rows
        self.glyphs = glyphs
        self.width = columns * glyphs.dots_across
        self.height = rows * glyphs.dots_down
        self._raw = [0] * (columns * rows)
        self._line = [0] * (columns * rows)
        self._text: dict[int, tuple[str, str]] = {}
        down = glyphs.dots_down
        self._spans = [
            [[glyphs.span(x, top, bottom) for bottom in range(down)] for top in range(down)]
            for x in range(glyphs.dots_across)
        ]

    def raw(self, x: int, top: int, bottom: int) -> None:
        """Raw dots of column `x` from row `top` to row `bottom`, both included."""
        self._column(self._raw, x, top, bottom)

    def line(self, x: int, top: int, bottom: int) -> None:
        """The same on the line's layer."""
        self._column(self._line, x, top, bottom)

    def _column(self, cells: list[int], x: int, top: int, bottom: int) -> None:
        down = self.glyphs.dots_down
        column, dot = divmod(x, self.glyphs.dots_across)
        spans = self._spans[dot]
        first_row, first_dot = divmod(top, down)
        last_row, last_dot = divmod(bottom, down)
        place = first_row * self.columns + column
        if first_row == last_row:
            cells[place] |= spans[first_dot][last_dot]
            return
        cells[place] |= spans[first_dot][down - 1]
        whole = spans[0][down - 1]
        for row in range(first_row + 1, last_row):
            cells[row * self.columns + column] |= whole
        cells[last_row * self.columns + column] |= spans[0][last_dot]

    def text(self, column: int, row: int, text: str, role: str) -> None:
        """Characters over whatever is there; what lies outside is cut. The second cell of a wide one holds no letter."""
        if not 0 <= row < self.rows:
            return
        for character in text:
            width = cells(character)
            if 0 <= column <= self.columns - width:
                self._put(row, column, character, width, role)
            column += width

    def _put(self, row: int, column: int, character: str, width: int, role: str) -> None:
        place = row * self.columns + column
        if self._text.get(place, (" ", ""))[0] == "":
            # Half of a wide letter that lies there already is no letter.
            self._text[place - 1] = (" ", role)
        if self._text.get(place + width, (" ", ""))[0] == "" and column + width < self.columns:
            self._text[place + width] = (" ", role)
        self._text[place] = (character, role)
        if width == 2:
            self._text[place + 1] = ("", role)

    def upright(self, column: int, role: str) -> None:
        """A line from top to bottom behind everything that is drawn already."""
        for row in range(self.rows):
            if self.is_free(column, row, 1):
                self.text(column, row, self.glyphs.upright, role)

    def clear_column(self, column: int) -> None:
        """No dots in this column of cells."""
        for place in range(column, self.columns * self.rows, self.columns):
            self._raw[place] = self._line[place] = 0

    def is_free(self, column: int, row: int, length: int) -> bool:
        """True where a text of this length would cover neither dots nor text."""
        if column < 0 or column + length > self.columns or not 0 <= row < self.rows:
            return False
        start = row * self.columns + column
        return not any(
            self._raw[place] or self._line[place] or place in self._text for place in range(start, start + length)
        )

    def row(self, row: int) -> Iterator[tuple[str, str]]:
        """The row as (text, role) runs; roles are "raw", "line" and those of the texts."""
        run, run_role = "", ""
        raw_characters, line_characters = self.glyphs.characters, self.glyphs.line_characters
        for place in range(row * self.columns, (row + 1) * self.columns):
            if place in self._text:
                character, role = self._text[place]
            elif self._line[place]:
                character, role = line_characters[self._line[place]], "line"
            elif self._raw[place]:
                character, role = raw_characters[self._raw[place]], "raw"
            else:
                character, role = " ", run_role or "raw"
            if role != run_role and run:
                yield run, run_role
                run = ""
            run += character
            run_role = role
        if run:
            yield run, run_role
