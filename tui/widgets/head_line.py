"""HeadLine: where one is, and at the right end what the plan came from and how much of it was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.widget import Widget
from trainwiz.core.plain import plain_text
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_state import PlanState


class HeadLine(Widget):
    """One line."""

    DEFAULT_CSS = """
    HeadLine { height: 1; padding: 0 1; }
    """

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._marks = marks
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.refresh()

    def render(self) -> RenderResult:
        state, dot = self._state, self._marks.dot
        left = Content.assemble(("trainwiz", "bold $accent"), (f" {dot} plan", "$muted"))
        if state is None:
            return left
        parts = [plain_text(state.request.profile or "no profile", 40)]
        if state.changed:
            parts.append(f"{state.changed} value{'' if state.changed == 1 else 's'} changed")
        if state.slow:
            parts.insert(0, "updating")
        right = f" {dot} ".join(parts)
        room = self.content_size.width - left.cell_length - 2
        if room < 4:
            return left
        right = plain_text(right, room)
        gap = self.content_size.width - left.cell_length - Content(right).cell_length
        return Content.assemble(left, " " * max(1, gap), (right, "$muted"))
