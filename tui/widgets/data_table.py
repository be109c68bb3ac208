"""DataTable: the first rows of the data, and which columns are learnt from, chosen in place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.screens.plan_offers import with_target, with_text
from trainwiz.tui.text import cells, cut, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import FocusLines
from trainwiz.tui.widgets.step_form import StepPart

if TYPE_CHECKING:
    from trainwiz.core.data.summary import Glance
    from trainwiz.tui.screens.plan_state import PlanState


# Which columns of the first rows are shown, and how wide: a pure function of the rows and the room.

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


TALL_ROWS, SHORT_ROWS = 5, 2
INDENT = 2


class DataTable(StepPart, FocusLines, can_focus=True):
    """Left and right move along the columns; space learns from one, t answers with one."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("columns")]
    DEFAULT_CSS = """
    DataTable { height: auto; }
    DataTable:focus { background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__(id="first-rows")
        self.cursor = 0

    @property
    def glance(self) -> Glance | None:
        return self._state.reading.glance if self._state is not None else None

    def show(self, state: PlanState) -> None:
        before, self._state = self.glance, state
        glance = self.glance
        # Nothing to look at takes neither room nor the focus.
        self.display = glance is not None and bool(glance.columns)
        if glance is before or glance is None:
            return
        if before is None or before.path != glance.path:
            self.cursor = glance.text or 0
        self.cursor = max(0, min(self.cursor, len(glance.columns) - 1))
        self.refresh(layout=True)

    # Drawing.

    def lines_in(self, width: int) -> list[Content]:
        glance = self.glance
        if glance is None:
            return []
        lines = list(table_lines(glance, self._column, self._rows, width))
        if self.has_focus:
            words = (
                tr("←→ move   space use as text   t use as target")
                if self._can_answer
                else tr("←→ move   space use as text")
            )
            lines.append(Content.styled(cut(" " * INDENT + words, width), "$muted"))
        return lines

    @property
    def _can_answer(self) -> bool:
        """Whether rows of this task may have a target."""
        return self._state is not None and self._state.plan is not None and self._state.plan.task != "masked-lm"

    @property
    def _rows(self) -> int:
        is_low = self.screen.has_class("-short") or self.screen.has_class("-low")
        return SHORT_ROWS if is_low else TALL_ROWS

    @property
    def _column(self) -> int | None:
        """The column that has the cursor, while the table has the focus."""
        return self.cursor if self.has_focus else None

    # Choosing.

    def action_move_column(self, by: int) -> None:
        if self.glance is not None:
            self.cursor = (self.cursor + by) % len(self.glance.columns)
            self.refresh(layout=True)

    def action_take_text(self) -> None:
        if self.glance is not None and self.glance.can_take(self.cursor):
            self.post_message(self.Changed(partial(with_text, self.glance, self.cursor)))

    def action_take_target(self) -> None:
        glance = self.glance
        if self._can_answer and glance is not None and glance.can_take(self.cursor, target=True):
            self.post_message(self.Changed(partial(with_target, glance, self.cursor)))


def table_lines(glance: Glance, cursor: int | None, rows: int, width: int) -> Iterator[Content]:
    """A title, the names of the columns, what each is used for, the first rows. `cursor` is a column's position."""
    shown = shown_columns(glance, cursor, rows, width - INDENT)
    yield Content()
    name, files = plain_text(glance.path.name, 200), glance.files
    title = tr("First rows of {file}", file=name)
    if files > 1:
        title = trn("First rows of {file}, one of {n} file", "First rows of {file}, one of {n} files", files, file=name)
    yield Content.styled(cut(title, width, marks.ellipsis), "bold $muted")
    yield _row(
        (column_name(glance, place), wide, "bold $accent" if place == cursor else "bold" if _is_used(glance, place) else "$muted")
        for place, wide in shown
    )  # fmt: skip
    yield _row(
        (
            f"{marks.here if place == cursor else marks.ok if _is_used(glance, place) else ''} {role_of(glance, place)}".strip(),
            wide,
            "$accent" if place == cursor or _is_used(glance, place) else "$muted",
        )
        for place, wide in shown
    )
    for row in glance.rows[:rows]:
        yield _row(
            (cell_text(row[place]), wide, "$foreground" if _is_used(glance, place) and row[place] else "$muted")
            for place, wide in shown
        )
    if not glance.rows:
        yield Content.styled("  " + tr("No readable rows."), "$muted")
    if hidden := len(glance.columns) - len(shown):
        yield Content.styled("  " + trn("{n} more column", "{n} more columns", hidden), "$muted")


def _is_used(glance: Glance, place: int) -> bool:
    return place in (glance.text, glance.target, *glance.parts)


def _row(parts: Iterator[tuple[str, int, str]]) -> Content:
    """Texts side by side, each in its cells."""
    line = [(pad(cut(text, wide), wide) + " " * GAP, style) for text, wide, style in parts]
    return Content.assemble(" " * INDENT, *line)
