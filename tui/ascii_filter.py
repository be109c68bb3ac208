"""AsciiFilter: draws every cell in ASCII, for terminals and fonts that have nothing else."""

from __future__ import annotations

import unicodedata

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_BY_HAND = {
    **dict.fromkeys("─━═╌┄▔▁", "-"),
    **dict.fromkeys("│┃║▏▕╎┆▎▍▌▐", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝", "+"),
    **dict.fromkeys("█▇▆▅▄▉▊▋■●", "#"),
    **dict.fromkeys("▒▓", "="),
    **dict.fromkeys("░▃▂", "."),
    "✓": "+",
    "✗": "x",
    "×": "x",
    "·": "-",
    "−": "-",
    "–": "-",
    "…": "~",
    "▸": ">",
    "›": ">",
    "▾": "v",
    "▲": "^",
    "▼": "v",
    "↑": "^",
    "↓": "v",
    "→": ">",
    "←": "<",
    "°": "o",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}


def ascii_text(text: str) -> str:
    """As many cells as `text`, all of them ASCII; what has no likeness becomes "?", and braille dots "*"."""
    return text if text.isascii() else "".join(_cells(character) for character in text)


def _cells(character: str) -> str:
    if character.isascii():
        return character
    if character in _BY_HAND:
        return _BY_HAND[character]
    if "\u2800" <= character <= "\u28ff":
        return " " if character == "\u2800" else "*"
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me", "Mn"}:
        return ""
    plain = unicodedata.normalize("NFKD", character)[:1]
    width = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return (plain if plain.isascii() else "?").ljust(width, "?")


class AsciiFilter(LineFilter):
    """Applied to every line on its way to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(ascii_text(segment.text), segment.style, segment.control)
            for segment in segments
        ]
