"""A row as the model will read it: its tokens in lines, the learnt ones between brackets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.core.tracing.chats import ShownChat
from trainwiz.tui.text import cells, pad

OPEN, CLOSE, SPLIT, LINE_END = "⟦", "⟧", "│", "↵"
ROLE_WIDTH = 11
LONGEST_PIECE = 400

Segment = tuple[str, bool]
"""(text, whether it is learnt); brackets belong to what is learnt, so that colour is not needed to tell."""


def chat_lines(shown: ShownChat, width: int, *, most: int | None = None, split: bool = True) -> Iterator[list[Segment]]:
    """The lines of a row, each as segments; the first of a turn begins with its role. `most` lines, then a last one that
    says how many tokens follow. `split` shows where tokens begin."""
    turns = shown.turns or (("", len(shown.pieces)),)
    start = done = 0
    for role, end in (*turns, ("", len(shown.pieces))):
        for number, line in enumerate(_turn(shown, start, end, max(20, width - ROLE_WIDTH), split)):
            if most is not None and done >= most - 1:
                left = len(shown.pieces) - start
                yield (
                    [(pad("", ROLE_WIDTH) + tr("… of {count} tokens", count=f"{len(shown.pieces):,}"), False)]
                    if left
                    else []
                )
                return
            label = pad(plain_text(role) if number == 0 else "", ROLE_WIDTH)
            yield [(label, False), *line]
            done += 1
        start = max(start, end)


def _turn(shown: ShownChat, start: int, end: int, width: int, split: bool) -> Iterator[list[Segment]]:
    """Tokens from `start` to `end` in lines of `width` cells; a line ends where the text does."""
    line: list[Segment] = []
    used = 0
    for place in range(start, end):
        piece, learnt = _visible(shown.pieces[place]), shown.learnt[place]
        # With the brackets of what is learnt, which a line closes.
        length = cells(piece) + (1 if split and line else 0) + (2 if not line or line[-1][1] != learnt else 0)
        if used and used + length > width:
            yield _marked(line, split)
            line, used = [], 0
        line.append((piece, learnt))
        used += length
        if piece.endswith(LINE_END) and place + 1 < end:
            yield _marked(line, split)
            line, used = [], 0
    if line:
        yield _marked(line, split)


def _marked(line: list[Segment], split: bool) -> list[Segment]:
    between = SPLIT if split else ""
    runs = [(between.join(piece for piece, _ in run), learnt) for learnt, run in groupby(line, itemgetter(1))]
    return [(f"{OPEN}{text}{CLOSE}" if learnt else text, learnt) for text, learnt in runs]


def _visible(piece: str) -> str:
    """A token on one line: ends of lines as a mark, what a terminal would obey taken out."""
    shown = piece[:LONGEST_PIECE].replace("\r\n", LINE_END).replace("\n", LINE_END).replace("\t", "→")
    return plain_text(shown) if shown.strip() else shown
