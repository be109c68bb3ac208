"""DotCanvas: a grid of dots drawn with braille, block or ASCII characters; its scales, and their round ticks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from trainwiz.tui.text import LARGE, cells, large_unit, short_exponent, value_label
from trainwiz.tui.theme import can_draw

LARGEST, SMALLEST = 1e300, 1e-290
"""Beyond these a float has no room for what is computed from it."""


class Scale(NamedTuple):
    """Maps values to dot rows; `low` and `high` are the values at the bottom and at the top."""

    low: float
    high: float
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """0 at the bottom, 1 at the top; outside of [0, 1] for values outside. 0 lies at the bottom of each log scale."""
        if not self.logarithmic:
            return (value - self.low) / (self.high - self.low)
        bottom, top = math.log10(self.low), math.log10(self.high)
        return (math.log10(value) - bottom) / (top - bottom) if value > 0 else 0.0

    def row(self, value: float, rows: int) -> int:
        """The row of a value among so many, counted from the top; kept inside."""
        return round((1.0 - min(1.0, max(0.0, self.share(value)))) * (rows - 1))


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


def ticks_of(scale: Scale, count: int) -> list[float]:
    """At most about `count` round values inside the scale, from below."""
    return (log_ticks if scale.logarithmic else linear_ticks)(scale.low, scale.high, count)


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Multiples of 1, 2 or 5 x 10^n inside [low, high], at most about `count`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1.0, 2.0, 5.0) if factor * power >= rough * (1 - 1e-9)), 10.0 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, min(last, first + 4 * count) + 1)]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten inside [low, high], with 2 and 5 between them where there is room; few decades give linear ticks."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1,)):
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if 2 <= len(ticks) <= count + 1:
            return ticks
    return linear_ticks(low, high, count) if len(ticks) < 2 else ticks[:: math.ceil(len(ticks) / count)]


def tick_labels(ticks: list[float]) -> list[str]:
    """The ticks as text, all with the same number of decimals."""
    if len(ticks) < 2:
        # No gap says how many decimals matter.
        return [value_label(tick) for tick in ticks]
    largest = max(map(abs, ticks))
    gap = min((after - before for before, after in pairwise(ticks) if after > before), default=largest or 1.0)
    size, unit = large_unit(largest) if largest >= LARGE else (1.0, "")
    if 1e-2 <= largest < 1e15:
        decimals = max(0, min(8, -_power(gap / size)))
        return ["0" if unit and tick == 0 else f"{tick / size:.{decimals}f}{unit}" for tick in ticks]
    digits = [max(0, min(4, _power(abs(tick)) - _power(gap))) if tick else 0 for tick in ticks]
    return [short_exponent(f"{tick:.{n}e}") if tick else "0" for tick, n in zip(ticks, digits, strict=True)]


def _power(value: float) -> int:
    """That of ten below it."""
    return math.floor(math.log10(value) + 1e-9)


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
    upright: str = "│"
    """The line of a cursor."""
    here: str = "●"
    """The value at the cursor."""


_BRAILLE_BITS = (1, 2, 4, 64, 8, 16, 32, 128)
_BRAILLE = " " + "".join(
    chr(0x2800 + sum(bit for place, bit in enumerate(_BRAILLE_BITS) if dots >> place & 1)) for dots in range(1, 256)
)
_QUADRANTS = " ▘▖▌▝▀▞▛▗▚▄▙▐▜▟█"
BRAILLE = Glyphs(2, 4, _BRAILLE, _BRAILLE, "◆", "×", "⠂", "⠒⠒")
BLOCK = Glyphs(2, 2, _QUADRANTS, _QUADRANTS, "◆", "×", "▘", "▀▀")
ASCII = Glyphs(1, 2, " '.:", " ***", "o", "x", ".", "*", "|", "@")

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
        self.columns, self.rows, self.glyphs = columns, rows, glyphs
        self.width = columns * glyphs.dots_across
        self.height = rows * glyphs.dots_down
        # One number for each column of dots; its lowest bit is the uppermost dot.
        self._raw = [0] * self.width
        self._line = [0] * self.width
        self._text: dict[tuple[int, int], tuple[str, str]] = {}

    def raw(self, x: int, top: int, bottom: int) -> None:
        """Raw dots of column `x` from row `top` to row `bottom`, both included."""
        self._raw[x] |= (1 << bottom + 1) - (1 << top)

    def line(self, x: int, top: int, bottom: int) -> None:
        """The same on the line's layer."""
        self._line[x] |= (1 << bottom + 1) - (1 << top)

    def text(self, column: int, row: int, text: str, role: str) -> None:
        """Characters over whatever is there; what lies outside is cut. The second cell of a wide one holds no letter."""
        for character in text:
            width = cells(character)
            if 0 <= row < self.rows and 0 <= column <= self.columns - width:
                # Half of a wide letter that lies there already is no letter.
                if self._text.get((row, column), " ")[0] == "":
                    self._text[row, column - 1] = (" ", role)
                if self._text.get((row, column + width), " ")[0] == "":
                    self._text[row, column + width] = (" ", role)
                for place in range(width):
                    self._text[row, column + place] = ("" if place else character, role)
            column += width

    def upright(self, column: int, role: str) -> None:
        """A line from top to bottom behind everything that is drawn already."""
        for row in range(self.rows):
            if self.is_free(column, row, 1):
                self.text(column, row, self.glyphs.upright, role)

    def clear_column(self, column: int) -> None:
        for x in range(column * self.glyphs.dots_across, (column + 1) * self.glyphs.dots_across):
            self._raw[x] = self._line[x] = 0

    def is_free(self, column: int, row: int, length: int) -> bool:
        """True where a text of this length would cover neither dots nor text."""
        if column < 0 or column + length > self.columns or not 0 <= row < self.rows:
            return False
        places = slice(column, column + length)
        is_dotted = any(self._codes(self._raw, row, places)) or any(self._codes(self._line, row, places))
        return not is_dotted and not any((row, place) in self._text for place in range(column, column + length))

    def _codes(self, dots: list[int], row: int, places: slice) -> list[int]:
        """For each cell the dots that are set, as a place among the characters."""
        across, down = self.glyphs.dots_across, self.glyphs.dots_down
        shift, whole = row * down, (1 << down) - 1
        parts = [column >> shift & whole for column in dots[places.start * across : places.stop * across]]
        return parts if across == 1 else [left | right << down for left, right in zip(parts[::2], parts[1::2])]  # noqa: B905

    def row(self, row: int) -> Iterator[tuple[str, str]]:
        """The row as (text, role) runs; roles are "raw", "line" and those of the texts."""
        run, run_role, whole = "", "", slice(0, self.columns)
        lines, raws = self._codes(self._line, row, whole), self._codes(self._raw, row, whole)
        for column, (line, raw) in enumerate(zip(lines, raws, strict=True)):
            if (row, column) in self._text:
                character, role = self._text[row, column]
            elif line:
                character, role = self.glyphs.line_characters[line], "line"
            elif raw:
                character, role = self.glyphs.characters[raw], "raw"
            else:
                character, role = " ", run_role or "raw"
            if role != run_role and run:
                yield run, run_role
                run = ""
            run += character
            run_role = role
        if run:
            yield run, run_role
