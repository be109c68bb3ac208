"""GpuRow: one GPU that can be taken for a run or left out; it draws a RowView and holds no choice of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.gpu_choice_lines import RowView, row_lines
from trainwiz.tui.widgets.step_parts import PartRow

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu


class GpuRow(PartRow):
    """One card or MIG slice."""

    field_id = "gpus"

    DEFAULT_CSS = """
    GpuRow { height: auto; }
    GpuRow:focus { background: $panel; }
    """

    class Toggled(Message):
        """Space on the row, or a click."""

        def __init__(self, gpu: Gpu) -> None:
            super().__init__()
            self.gpu = gpu

    def __init__(self, view: RowView, marks: Marks) -> None:
        super().__init__()
        self._marks = marks
        self.view = view

    def show(self, view: RowView) -> None:
        self.can_focus = view.can_be_chosen
        if view != self.view:
            self.view = view
            self.refresh(layout=True)

    def press(self) -> None:
        if self.view.can_be_chosen:
            self.post_message(self.Toggled(self.view.gpu))

    def _content(self, width: int) -> Content:
        roomy = not (self.screen.has_class("-short") or self.screen.has_class("-low") or self.screen.has_class("-slim"))
        return Content("\n").join(row_lines(self.view, width, self._marks, focused=self.has_focus, roomy=roomy))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._content(width).plain.count("\n") + 1

    def render(self) -> RenderResult:
        return self._content(self.content_size.width)

    def on_focus(self) -> None:
        self.refresh(layout=True)

    def on_blur(self) -> None:
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.focus(scroll_visible=False)
        self.press()
