"""Which columns of the first rows are shown, and how wide: a pure function of the rows and the room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells

if TYPE_CHECKING:
    from trainwiz.core.data.glance import Glance

GAP = 2
LEAST_MAPPED, LEAST_OTHER = 16, 12
WIDEST = 80


def shown_columns(glance: Glance, cursor: int | None, rows: int, width: int) -> list[tuple[int, int]]:
    """(position, cells) of the columns that fit into `width`, in the order of the file.

    The column of the cursor and those that are learnt from come first where not all fit; they also get the spare
    cells first. There is one at least.
    """
    important = [place for place in (cursor, glance.text, glance.target) if place is not None]
    mapped = {place for place in (glance.text, glance.target) if place is not None}
    wide: dict[int, int] = {}
    room = width
    for place in dict.fromkeys([*important, *range(len(glance.columns))]):
        natural = _natural(glance, place, rows)
        least = min(natural, LEAST_MAPPED if place in mapped else LEAST_OTHER)
        if wide and room < least + GAP:
            if place in important:
                continue
            break
        wide[place] = min(least, width)
        room -= wide[place] + (GAP if len(wide) > 1 else 0)
    for some in (mapped & wide.keys(), wide.keys() - mapped):
        room = _spread(wide, {place: _natural(glance, place, rows) for place in some}, room)
    return sorted(wide.items())


def _spread(wide: dict[int, int], natural: dict[int, int], room: int) -> int:
    """Widen columns evenly, each up to its natural width; returns the cells that are left."""
    while hungry := [place for place in natural if wide[place] < natural[place]]:
        share = max(1, room // len(hungry))
        for place in hungry:
            more = min(share, room, natural[place] - wide[place])
            wide[place] += more
            room -= more
        if room <= 0:
            break
    return room


def _natural(glance: Glance, place: int, rows: int) -> int:
    """Cells that a column would like to have."""
    texts = [column_name(glance, place), role_of(glance, place), *(cell_text(row[place]) for row in glance.rows[:rows])]
    return min(WIDEST, max(map(cells, texts)) + 2)


def column_name(glance: Glance, place: int) -> str:
    return plain_text(glance.columns[place].name, 4 * WIDEST) or tr("(no name)")


def role_of(glance: Glance, place: int) -> str:
    """What a column is used for, in a word; the type of one that cannot be used."""
    if place == glance.text:
        return tr("text")
    if place == glance.target:
        return tr("target")
    column = glance.columns[place]
    return "" if column.is_text else plain_text(column.type_name, WIDEST)


def cell_text(cell: str | None) -> str:
    """A cell in one line; what is not there and what is empty is said."""
    if cell is None:
        return tr("(no value)")
    text = plain_text(cell[: 8 * WIDEST], 4 * WIDEST).strip()
    return text or tr("(empty)")


def hidden_columns(glance: Glance, shown: Sequence[tuple[int, int]]) -> int:
    return len(glance.columns) - len(shown)
