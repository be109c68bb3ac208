"""StepPart: a widget that a step or a field brings beside its rows, and the rows of such widgets that take the focus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events, on
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.worker import Worker, WorkerState
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_state import FILES_FOLLOW, PlanState
from trainwiz.tui.widgets.frame import failure_words
from trainwiz.tui.widgets.lists import LinesWidget, Pressed, line_key

if TYPE_CHECKING:
    from trainwiz.core.config.request import PlanRequest

    Change = Callable[[PlanRequest], PlanRequest]
    """How a request becomes the next one; given to what the request is by then."""
    Answer = str | Change | None
    """What a dialog is dismissed with: a text as if it were typed into the field, a change, or nothing."""
    Draw = Callable[[PlanState, int, bool], Iterable[Content]]
    """Lines for (state, width in cells, whether the screen is small)."""


class StepPart(Widget):
    """A widget of a step that draws a PlanState."""

    DEFAULT_CSS = """
    StepPart { height: auto; width: 1fr; }
    """

    @dataclass
    class Changed(Message):
        """The user chose something in the part: the screen plans for `change(request)`."""

        change: Change

    @dataclass
    class FieldWanted(Message):
        """The user wants to see a field, on whichever step it is."""

        field_id: str

    _state: PlanState | None = None
    _said = ""

    def show(self, state: PlanState) -> None:
        """Draw a state; called for every change while the step is on the screen. Must be quick."""

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
            self.failed(failure_words(event.worker.error))


class LinesPart(StepPart, LinesWidget):
    """The lines that a pure function makes of the state."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self._kept: dict[tuple[int, bool], list[Content]] = {}
        """The lines of the state by width and smallness: the layout and the painting ask for the same ones."""

    def show(self, state: PlanState) -> None:
        if self._state is not None and state.reading.waits_for == FILES_FOLLOW:
            # Figures first: a curve costs as much as all of them, and is drawn a moment later.
            return
        before, self._state = self._state, state
        if before is not None and drawn_of(before) == drawn_of(state):
            return
        # The screen is laid out only where the height changes, and painted where a line does: that costs most.
        width, size = self.content_size.width, self.app.size
        drawn = self._kept.get((width, is_small(self)))
        self._kept.clear()
        if drawn is not None and [*map(line_key, drawn)] == [*map(line_key, self.lines_in(width))]:
            return
        is_as_high = width > 0 and self.get_content_height(size, size, width) == self.content_size.height
        self.refresh(layout=not is_as_high)

    def lines_in(self, width: int) -> list[Content]:
        if self._state is None:
            return []
        small = is_small(self)
        if (width, small) not in self._kept:
            self._kept[width, small] = list(self.draw(self._state, width, small))
        return self._kept[width, small]


def drawn_of(state: PlanState) -> tuple[object, ...]:
    """What the lines of a part follow from; equal where they cannot have changed."""
    return id(state.reading), state.updating, state.slow, state.invalid, state.details


def is_small(widget: Widget) -> bool:
    """The screen has no room for what can be done without."""
    return any(widget.screen.has_class(name) for name in ("-low", "-short", "-slim"))


class PartRow(Widget, can_focus=True):
    """A row of a part that takes the focus: space presses it, and help and reset are those of its field."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    field_id = ""

    def press(self) -> None:
        """Space, or a click."""
        self.post_message(Pressed(self))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.focus(scroll_visible=False)
        self.press()
