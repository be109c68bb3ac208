"""A row as the model will read it: its tokens in lines, the learnt ones between brackets."""

from __future__ import annotations

from collections.abc import Iterator

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
    inside = False
    for place in range(start, end):
        learnt = shown.learnt[place]
        piece = _visible(shown.pieces[place])
        opens, closes = learnt and not inside, inside and not learnt
        before = (CLOSE if closes else "") + (OPEN if opens else SPLIT if split and line and not closes else "")
        if used and used + cells(before + piece) + 1 > width:
            yield [*line, (CLOSE, True)] if inside else line
            line, used = [], 0
            before = OPEN if learnt else ""
            closes = False
        if closes:
            line.append((CLOSE, True))
            before = before.removeprefix(CLOSE)
        line.append((before + piece, learnt))
        used = sum(cells(text) for text, _ in line)
        inside = learnt
        if piece.endswith(LINE_END) and place + 1 < end:
            yield [*line, (CLOSE, True)] if inside else line
            line, used, inside = [], 0, False
    if line:
        yield [*line, (CLOSE, True)] if inside else line


def _visible(piece: str) -> str:
    """A token on one line: ends of lines as a mark, what a terminal would obey taken out."""
    shown = piece[:LONGEST_PIECE].replace("\r\n", LINE_END).replace("\n", LINE_END).replace("\t", "→")
    return plain_text(shown) if shown.strip() else shown
