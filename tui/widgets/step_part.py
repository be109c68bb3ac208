"""StepPart: a widget that a step or a field brings beside its rows, and the rows of such widgets that take the focus."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget
from textual.worker import Worker, WorkerState
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.tui.screens.plan_state import PlanState

    Change = Callable[[PlanRequest], PlanRequest]
    """How a request becomes the next one; given to what the request is by then."""
    Answer = str | Change | None
    """What a dialog is dismissed with: a text as if it were typed into the field, a change, or nothing."""


class StepPart(Widget):
    """A widget of a step that draws a PlanState. Subclasses are made with (step, marks)."""

    DEFAULT_CSS = """
    StepPart { height: auto; width: 1fr; }
    """

    class Changed(Message):
        """The user chose something in the part: the screen plans for `change(request)`."""

        def __init__(self, change: Change) -> None:
            super().__init__()
            self.change = change

    class FieldSet(Message):
        """The user chose a text for a field: the same as typing it there."""

        def __init__(self, field_id: str, text: str) -> None:
            super().__init__()
            self.field_id = field_id
            self.text = text

    class FieldWanted(Message):
        """The user wants to see a field, on whichever step it is."""

        def __init__(self, field_id: str) -> None:
            super().__init__()
            self.field_id = field_id

    def __init__(self, step: int, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.step = step
        self.marks = marks
        self._said = ""

    def show(self, state: PlanState) -> None:
        """Draw a state; called for every change while the step is on the screen. Must be quick."""

    def redraw(self) -> None:
        """Draw anew, for a part that draws itself. The screen is laid out only where the height changes: that costs most."""
        width, size = self.content_size.width, self.app.size
        is_as_high = width > 0 and self.get_content_height(size, size, width) == self.content_size.height
        self.refresh(layout=not is_as_high)

    def visit(self, shown: bool) -> None:
        """The step came onto the screen or left it: what polls begins and ends here."""

    def failed(self, sentence: str) -> None:
        """A worker of the part broke off. Said once: what polls would say it again and again."""
        if sentence != self._said:
            self._said = sentence
            self.app.notify(plain_text(sentence), severity="error", markup=False)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        """These messages do not bubble: without this nobody would hear of a failure that nobody foresaw."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.failed(unforeseen_words(event.worker.error))


def unforeseen_words(error: BaseException) -> str:
    """What is said of a failure that is a mistake of trainwiz's own."""
    return tr("trainwiz failed where it should not: {kind}: {reason}.", kind=type(error).__name__, reason=error)


class PartRow(Widget, can_focus=True):
    """A row of a part that takes the focus: space presses it, and help and reset are those of its field."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    field_id = ""

    def press(self) -> None:
        """Space, or a click."""


# CursorList: lines with a cursor that up and down move; beyond the first and the last the focus leaves it.


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
