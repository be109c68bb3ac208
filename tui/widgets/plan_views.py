"""PlanPanel: the whole plan beside the form, with its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from trainwiz.core.language import tr
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.text_lines import TextLines

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_state import PlanState
    from trainwiz.tui.widgets.findings_view import FindingsView


class PlanPanel(VerticalScroll, can_focus=False):
    """An old plan is dimmed while the head line says "updating"; it is never blank."""

    DEFAULT_CSS = """
    PlanPanel { padding: 0 1; scrollbar-size: 1 1; scrollbar-gutter: stable; }
    """

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._state: PlanState | None = None
        self._drawn: tuple[object, ...] = ()
        self._findings: FindingsView | None = None

    def compose(self) -> ComposeResult:
        yield TextLines(id="panel-plan")

    def show(self, state: PlanState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        state = self._state
        width = self.scrollable_content_region.width
        if state is None or width <= 0:
            return
        reading = state.reading
        is_old = state.plan is not None and (state.slow or bool(reading.findings))
        self.query_one("#panel-plan", TextLines).dim(is_old)
        shown = (state.plan, reading.findings, reading.effects, reading.read_at, width)
        if state.plan is not None and self._drawn and all(a is b for a, b in zip(shown, self._drawn, strict=True)):
            return
        self._drawn = shown
        upper = self.query_one("#panel-plan", TextLines)
        if state.plan is None and not reading.findings:
            # There is nothing more to draw, and the first frame need not wait for what draws it.
            upper.show(_placeholder(self._waiting(reading.waits_for)))
            return
        from trainwiz.tui.widgets.findings_view import FindingsView
        from trainwiz.tui.widgets.plan_panel import panel_lines

        if state.plan is None:
            upper.show(_placeholder(self._waiting(reading.waits_for)))
        else:
            upper.show(panel_lines(state.plan, width, self._marks, reading.read_at))
        if self._findings is None:
            self._findings = FindingsView(self._marks, id="panel-findings")
            self.mount(self._findings)
        self._findings.show(state, width)

    def _waiting(self, what: str) -> str:
        return f"{tr(what)} {self._marks.ellipsis}" if what else tr("no plan")


def _placeholder(text: str) -> list[Content]:
    lines: list[Content] = []
    for heading in (tr("Batch"), tr("Memory"), tr("Host RAM"), tr("Disk"), tr("Time")):
        lines += [Content.styled(heading, "bold"), Content.styled(f"  {text}", "$muted"), Content()]
    return lines
