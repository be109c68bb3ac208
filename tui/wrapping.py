"""Texts in lines of so many cells. Chinese has no spaces: a line may end after nearly every letter of it.

Rich, and with it Textual, breaks at spaces alone: a Chinese sentence between two English words would go to
a line of its own as a whole, and its full stop to the next.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, chop_cells
from trainwiz.core.language import language

_OPENING = "（《「『【〔"
_CLOSING = "，。、；：？！）》」』】〕％"
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_PIECE = re.compile(
    rf"\s*(?:[{_OPENING}]*(?:[^\s{_WIDE}]+|(?![{_CLOSING}])[{_WIDE}])[{_CLOSING}]*|\S)\s*",
)
"""What is not parted: a run of narrow letters or one wide letter, with the punctuation that stays with it."""


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """The parts of a text between which a line may end, each with its place; spaces stay with the part before."""
    place = 0
    while (found := _PIECE.match(text, place)) is not None:
        yield found.start(), found.group()
        place = found.end()


def divide_line(text: str, width: int, fold: bool = True) -> list[int]:
    """The places at which a text has to be broken; as Rich's, which knows spaces only.

    A part that is longer than a line is cut (`fold`), or goes on beyond its end.
    """
    breaks: list[int] = []
    used = 0
    for start, piece in pieces(text):
        length = cell_len(piece.rstrip())
        if length <= width - used:
            used += cell_len(piece)
            continue
        if start:
            breaks.append(start)
        if length <= width or not fold:
            used = cell_len(piece)
            continue
        *whole, last = chop_cells(piece, max(2, width))
        for part in whole:
            start += len(part)
            breaks.append(start)
        used = cell_len(last)
    return breaks


def wrap(text: str, width: int, fold: bool = True) -> list[str]:
    """Lines of at most `width` cells, as textwrap.wrap makes lines of so many letters.

    Without `fold` a path or a command that is longer than a line stays whole, so that it can be pasted.
    """
    return list(_wrapped(text, width, fold))


@lru_cache(maxsize=64)
def _wrapped(text: str, width: int, fold: bool) -> tuple[str, ...]:
    """Kept, as a monitor draws the same sentences every second."""
    if text.isascii() or cell_len(text := re.sub(r"\s", " ", text.strip())) == len(text):
        return tuple(textwrap.wrap(text, width, break_long_words=fold, break_on_hyphens=fold))
    ends = [0, *divide_line(text, width, fold), len(text)]
    lines = (text[start:end].strip() for start, end in pairwise(ends))
    return tuple(line for line in lines if line)


_COMMAND = re.compile(r"(?:(?P<sentence>.*[.:!?。：！？])\s*)?(?P<command>trainwiz\s.*[^\s.。!?！？])")


def command_apart(text: str) -> tuple[str, str]:
    """What to do, and the command at its end, which has to stay on a line of its own to be pasted; "" without one."""
    found = _COMMAND.fullmatch(text.strip())
    return (found["sentence"] or "", found["command"]) if found else (text, "")


def sentence_gap() -> str:
    """What stands between two sentences: Chinese ones have no space."""
    return "" if language() == "zh" else " "
