"""FactsView: what was found, beneath the fields of a step, as lines of a label and a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_state import PlanState

LABEL = 14


class FactsView(StepPart):
    """The facts of one step; subclasses say which."""

    DEFAULT_CSS = """
    FactsView { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None

    def facts(self, state: PlanState, width: int) -> Content:
        """The facts in `width` cells; what is being read while it is."""
        raise NotImplementedError

    def show(self, state: PlanState) -> None:
        self._state = state
        self.redraw()

    def _content(self, width: int) -> Content:
        return Content() if self._state is None else self.facts(self._state, width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._content(width).plain.count("\n") + 1

    def render(self) -> RenderResult:
        return self._content(self.content_size.width)


def title(text: str) -> Content:
    return Content.styled(text, "bold $muted")


def waiting(what: str, marks: Marks) -> Content:
    return Content.styled(f"  {plain_text(what)} {marks.ellipsis}", "$muted")


def line(label: str, value: str, note: str, width: int, marks: Marks) -> Content:
    """A value with a note after it, as far as there is room."""
    value = cut(plain_text(value), max(8, width - LABEL - 3), marks.ellipsis)
    room = width - LABEL - 3 - cells(value) - 2
    note = f"  {cut(plain_text(note), room, marks.ellipsis)}" if note and room > 6 else ""
    return Content.assemble("  ", (pad(label, LABEL), "$muted"), value, (note, "$muted"))


def hanging(label: str, text: str, width: int) -> Iterator[Content]:
    """A label with a text that hangs beneath it over several lines."""
    lines = Content(plain_text(text)).wrap(max(10, width - LABEL - 3))
    for index, one in enumerate(lines):
        yield Content.assemble("  ", (pad(label if index == 0 else "", LABEL), "$muted"), one.plain.rstrip())
