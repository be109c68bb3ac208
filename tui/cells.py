"""Widths on a screen: Chinese letters take two cells, so no width here is a len()."""

from __future__ import annotations

import re
import textwrap

from rich.cells import cell_len, set_cell_size


def cells(text: str) -> int:
    """How many cells a text takes."""
    return cell_len(text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """A text filled up with spaces to `width` cells, after it or (`right`: aligned right) before it; never cut."""
    missing = " " * max(0, width - cell_len(text))
    return missing + text if right else text + missing


def cut(text: str, width: int, mark: str = "…") -> str:
    """At most `width` cells of a text; `mark` ends it where letters had to go."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(mark)
    if room < 0:
        return set_cell_size(mark, max(0, width)).rstrip()
    return set_cell_size(text, room).rstrip() + mark


def wrap(text: str, width: int) -> list[str]:
    """A text as lines of at most `width` cells, broken between words; never none.

    Chinese is broken between any two letters, and a word (a path, a command) stays whole in spite of the width.
    """
    if text.isascii():
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines]


_WIDE = r"\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60"
_CLOSING = r"，。：；、！？）》」』”’"
_PIECE = re.compile(rf"\s*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*\s*")
"""What stays on one line: a Chinese letter or a word, with the punctuation that may not begin a line."""
