"""Widths: what is aligned and cut is counted in cells of the terminal, not in letters."""

from __future__ import annotations

import random

from rich.cells import cell_len
from trainwiz.core.text import plain_text
from trainwiz.tui.text import cells, cut, pad

from tests.each import each

LETTERS = "ab z中文，。é한글🙂…e\u0301"


def some_texts() -> list[str]:
    chance = random.Random(7)
    return ["".join(chance.choices(LETTERS, k=chance.randrange(30))) for _ in range(2_000)]


def test_pad_fills_up_to_a_width_and_never_cuts() -> None:
    for text in some_texts():
        for right in (False, True):
            padded = pad(text, 20, right=right)
            assert cells(padded) == max(20, cells(text))
            assert padded.endswith(text) if right else padded.startswith(text)


@each("width", [1, 2, 3, 7, 24])
def test_cut_is_as_wide_as_may_be(width: int) -> None:
    for text in some_texts():
        short = cut(text, width)
        assert cell_len(short) <= width
        assert (short == text) == (cells(text) <= width) or text.endswith("…")


@each("limit", [1, 2, 3, 7, 24])
def test_plain_text_counts_cells_as_the_terminal_does(limit: int) -> None:
    for text in some_texts():
        short, whole = plain_text(text, limit), plain_text(text)
        assert cell_len(short) <= limit
        if cell_len(whole) <= limit:
            assert short == whole
        else:
            assert short.endswith("…") and whole.startswith(short[:-1])
            assert cell_len(short) >= limit - 1, "a wide letter may leave one cell free, not more"
