"""Widths on a screen: Chinese letters take two cells, so no width here is a len()."""

from __future__ import annotations

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
