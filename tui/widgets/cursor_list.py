"""CursorList: lines with a cursor that up and down move; beyond the first and the last the focus leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from trainwiz.tui.keys import bindings
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_form import PartRow

if TYPE_CHECKING:
    from textual import events


class CursorList(PartRow):
    """Subclasses draw `size_of_list` lines, each one line high."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("files")]
    DEFAULT_CSS = """
    CursorList { height: auto; padding: 0; }
    CursorList:focus { background: $panel; }
    """

    def __init__(self, marks: Marks, *, id: str) -> None:
        super().__init__(id=id)
        self.marks = marks
        self.cursor = 0

    @property
    def size_of_list(self) -> int:
        """How many lines the cursor can be on."""
        raise NotImplementedError

    def moved(self) -> None:
        """The cursor is on another line."""

    def keep_cursor(self) -> None:
        """After the list became another one."""
        self.cursor = min(self.cursor, max(0, self.size_of_list - 1))
        self.refresh(layout=True)

    def set_cursor(self, cursor: int) -> None:
        self.cursor = cursor
        self.refresh()
        holder = next((node for node in self.ancestors if isinstance(node, VerticalScroll)), None)
        if holder is not None:
            # The list may be higher than the screen.
            line = self.region.y - holder.region.y + round(holder.scroll_y) + cursor
            holder.scroll_to_region(Region(0, line, 1, 1), animate=False)
        self.moved()

    def action_move_file(self, by: int) -> None:
        cursor = self.cursor + by
        if 0 <= cursor < self.size_of_list:
            self.set_cursor(cursor)
        elif by > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def action_scroll_file(self, pages: int) -> None:
        """Only a list of files has something beside it that scrolls."""

    def on_click(self, event: events.Click) -> None:
        self.focus(scroll_visible=False)
        if event.y < self.size_of_list:
            self.set_cursor(event.y)
