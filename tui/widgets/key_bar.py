"""KeyBar: the keys of the current screen in one line; what does not fit is left to the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import RenderResult
from textual.content import Content
from textual.style import Style
from textual.widget import Widget
from trainwiz.tui.cells import cells
from trainwiz.tui.dispatch import owner_of
from trainwiz.tui.keys import KeyBinding
from trainwiz.tui.widgets.repaint import Kept

GAP = 3


def fitting_keys(rows: Sequence[KeyBinding], width: int) -> list[KeyBinding]:
    """The rows that fit into `width` cells, in their order; the highest ranks are left out first."""
    kept = [row for row in rows if row.rank < 9]
    while kept and sum(cells(row.shown_key) + 1 + cells(row.words) + GAP for row in kept) - GAP > width:
        worst = max(row.rank for row in kept)
        if worst == 0:
            break
        kept.remove([row for row in kept if row.rank == worst][-1])
    return kept


class KeyBar(Kept, Widget):
    """The keys that `rows` returns, redrawn by `refresh()` when they change. A click does what the key does."""

    def __init__(self, rows: Callable[[], Sequence[KeyBinding]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows = rows

    def render(self) -> RenderResult:
        parts: list[Content] = []
        for row in fitting_keys(self._rows(), self.content_size.width):
            words = Content.assemble((row.shown_key, "$foreground"), f" {row.words}")
            parts.append(words.stylize(Style.from_meta({"@click": f"do_row({row.id!r})"})))
        return Content(" " * GAP).join(parts)

    async def action_do_row(self, row_id: str) -> None:
        """Do what the key of this row does."""
        row = next((row for row in self._rows() if row.id == row_id), None)
        if row is not None:
            await self.app.run_action(row.action, owner_of(row, self.screen, self.screen.focused))
