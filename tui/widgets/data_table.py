"""The first rows of the data, and which columns are learnt from. Pure functions of the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.text import cells, cut, pad
from trainwiz.tui.theme import marks

if TYPE_CHECKING:
    from trainwiz.core.data.summary import Glance
    from trainwiz.tui.screens.plan_state import PlanState

GAP = 2
LEAST_MAPPED, LEAST_OTHER = 16, 12
WIDEST = 80
TALL_ROWS, SHORT_ROWS = 5, 2
INDENT = 2


def first_rows(state: PlanState, width: int, is_small: bool) -> Iterable[Content]:
    glance = state.reading.glance
    if glance is None or not glance.columns:
        return ()
    return table_lines(glance, SHORT_ROWS if is_small else TALL_ROWS, width)


def shown_columns(glance: Glance, rows: int, width: int) -> list[tuple[int, int]]:
    """(position, cells) of the columns that fit into `width`, in the order of the file.

    Those that are learnt from come first where not all fit, and get the spare cells first. There is one at least.
    """
    mapped = [place for place in (glance.text, glance.target) if place is not None]
    natural: dict[int, int] = {}
    wide: dict[int, int] = {}
    room = width + GAP
    for place in dict.fromkeys([*mapped, *range(len(glance.columns))]):
        natural[place] = _natural(glance, place, rows)
        least = min(natural[place], LEAST_MAPPED if place in mapped else LEAST_OTHER, width)
        if wide and room < least + GAP:
            break
        wide[place] = least
        room -= least + GAP
    for place in wide:
        more = max(0, min(room, natural[place] - wide[place]))
        wide[place] += more
        room -= more
    return sorted(wide.items())


def _natural(glance: Glance, place: int, rows: int) -> int:
    """Cells that a column would like to have."""
    texts = [column_name(glance, place), role_of(glance, place), *(cell_text(row[place]) for row in glance.rows[:rows])]
    return min(WIDEST, max(map(cells, texts)) + 2)


def column_name(glance: Glance, place: int) -> str:
    return plain_text(glance.columns[place].name, 4 * WIDEST) or tr("(no name)")


def role_of(glance: Glance, place: int) -> str:
    """What a column is used for, in a word; the type of one that cannot be used."""
    if place in glance.parts:
        return tr(glance.parts[place])
    if place == glance.text:
        return tr("text")
    if place == glance.target:
        return tr("class") if glance.kind in CLASSIFIES else tr("target")
    column = glance.columns[place]
    return "" if column.is_text else plain_text(column.type_name, WIDEST)


def cell_text(cell: str | None) -> str:
    """A cell in one line; what is not there and what is empty is said."""
    if cell is None:
        return tr("(no value)")
    text = plain_text(cell[: 8 * WIDEST], 4 * WIDEST).strip()
    return text or tr("(empty)")


def table_lines(glance: Glance, rows: int, width: int) -> Iterator[Content]:
    """A title, the names of the columns, what each is used for, the first rows."""
    shown = shown_columns(glance, rows, width - INDENT)
    used = {glance.text, glance.target, *glance.parts}
    yield Content()
    name, files = plain_text(glance.path.name, 200), glance.files
    title = tr("First rows of {file}", file=name)
    if files > 1:
        title = trn("First rows of {file}, one of {n} file", "First rows of {file}, one of {n} files", files, file=name)
    yield Content.styled(cut(title, width, marks.ellipsis), "bold $muted")
    yield _row((column_name(glance, place), wide, "bold" if place in used else "$muted") for place, wide in shown)
    yield _row(
        (
            f"{marks.ok if place in used else ''} {role_of(glance, place)}".strip(),
            wide,
            "$accent" if place in used else "$muted",
        )
        for place, wide in shown
    )
    for row in glance.rows[:rows]:
        yield _row(
            (cell_text(row[place]), wide, "$foreground" if place in used and row[place] else "$muted")
            for place, wide in shown
        )
    if not glance.rows:
        yield Content.styled("  " + tr("No readable rows."), "$muted")
    if hidden := len(glance.columns) - len(shown):
        yield Content.styled("  " + trn("{n} more column", "{n} more columns", hidden), "$muted")


def _row(parts: Iterable[tuple[str, int, str]]) -> Content:
    """Texts side by side, each in its cells."""
    line = [(pad(cut(text, wide), wide) + " " * GAP, style) for text, wide, style in parts]
    return Content.assemble(" " * INDENT, *line)
