"""DotCanvas: a grid of dots drawn with braille, block or ASCII characters, one colour a cell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainwiz.tui.cells import cells
from trainwiz.tui.theme import can_draw

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
