"""HeadLine: where one is, and at the right end what the plan came from and how much of it was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.widget import Widget
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.repaint import Kept

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_state import PlanState


class HeadLine(Kept, Widget):
    """One line."""

    DEFAULT_CSS = """
    HeadLine { height: 1; padding: 0 1; }
    """

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._marks = marks
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        before, self._state = self._state, state
        if before is None or (before.slow, before.request) != (state.slow, state.request):
            self.refresh()

    def render(self) -> RenderResult:
        state, dot = self._state, self._marks.dot
        left = Content.assemble(("trainwiz", "bold $accent"), (f" {dot} {tr('plan')}", "$muted"))
        if state is None:
            return left
        parts = [plain_text(state.request.profile or tr("no profile"), 40)]
        if state.changed:
            parts.append(trn("{n} value changed", "{n} values changed", state.changed))
        if state.slow:
            parts.insert(0, tr("updating"))
        right = f" {dot} ".join(parts)
        room = self.content_size.width - left.cell_length - 2
        if room < 4:
            return left
        right = cut(right, room, self._marks.ellipsis)
        gap = self.content_size.width - left.cell_length - cells(right)
        return Content.assemble(left, " " * max(1, gap), (right, "$muted"))
