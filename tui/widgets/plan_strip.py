"""PlanStrip: the plan folded to a few lines beneath the form."""

from __future__ import annotations

from textual.content import Content
from trainwiz.tui.screens.plan_state import PlanState
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.repaint import LinedWidget
from trainwiz.tui.widgets.text_lines import dimmed


class PlanStrip(LinedWidget):
    """The folded plan. An old one is dimmed."""

    DEFAULT_CSS = """
    PlanStrip { height: 4; padding: 0 1; }
    """

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        if self.display:
            self.refresh_changed()

    def content_lines(self) -> list[Content]:
        state, size = self._state, self.content_size
        if state is None or not size:
            return []
        # Where the plan stands beside the form, the first frame need not wait for what draws it here.
        from trainwiz.tui.widgets.strip_lines import strip_lines

        lines = strip_lines(state, size.width, size.height, self._marks)
        is_old = state.plan is not None and (state.slow or bool(state.reading.findings))
        return dimmed(lines) if is_old else lines
