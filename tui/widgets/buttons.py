"""Buttons that say what they do: actions, remedies, keeping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult, RenderResult
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static
from trainwiz.core.language import tr
from trainwiz.tui.widgets.field_row import wrap
from trainwiz.tui.widgets.lists import TextLines

if TYPE_CHECKING:
    from textual import events


# ActionButton: a word in brackets that says what it does, or why it cannot.


class ActionButton(Widget, can_focus=True):
    """Enter (through the screen) or a click presses it."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    DEFAULT_CSS = """
    ActionButton { width: auto; height: 1; margin: 0 2 0 0; color: $foreground; }
    ActionButton.-blocked { width: 1fr; height: auto; margin: 0; color: $error; }
    ActionButton:hover { background: $panel; }
    ActionButton:focus { background: $accent; color: $background; text-style: bold; }
    """

    class Pressed(Message):
        """The button was pressed."""

        def __init__(self, button: ActionButton) -> None:
            super().__init__()
            self.button = button

    def __init__(self, label: str, action: str) -> None:
        super().__init__(id=f"button-{action}")
        self.action = action
        self._label = label
        self._reason = ""

    def show(self, label: str, reason: str = "") -> None:
        """Another word on it, and beneath it why it cannot do that now."""
        if (label, reason) != (self._label, self._reason):
            self._label, self._reason = label, reason
            self.set_class(bool(reason), "-blocked")
            self.refresh(layout=True)

    def _lines(self, width: int) -> list[str]:
        return [f"[ {self._label} ]", *(f"  {line}" for line in wrap(self._reason, width - 2))]

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return Content(self._lines(container.width)[0]).cell_length

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> RenderResult:
        return Content("\n".join(self._lines(self.content_size.width)))

    def on_click(self) -> None:
        self.focus(scroll_visible=False)
        self.post_message(self.Pressed(self))


# RemedyButton: one remedy of the plan's findings.


class RemedyButton(TextLines, can_focus=True):
    """One remedy. Its digit, enter, space or a click applies it."""

    DEFAULT_CSS = """
    RemedyButton:hover { background: $panel; }
    RemedyButton:focus { background: $panel; }
    """

    class Pressed(Message):
        """The button was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, number: int) -> None:
        super().__init__(id=f"remedy-{number}")
        self.number = number

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Pressed(self.number))


# KeepRow: the name under which something is kept, and the button that keeps it.

LONGEST_PROFILE_NAME = 80


class KeepRow(Horizontal):
    """Proposes names until the user types one."""

    DEFAULT_CSS = """
    KeepRow { height: 1; }
    KeepRow Static { width: auto; color: $muted; margin: 0 1 0 0; }
    KeepRow Input { width: 1fr; max-width: 40; border: none; height: 1; padding: 0; background: $panel; margin: 0 2 0 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._proposed = ""

    def compose(self) -> ComposeResult:
        yield Static(tr("Keep as"), markup=False)
        entry = Input(placeholder=tr("a name for it"), max_length=LONGEST_PROFILE_NAME, compact=True)
        entry.cursor_blink = False
        yield entry
        yield ActionButton(tr("use it"), "use")

    @property
    def name_typed(self) -> str:
        return self.query_one(Input).value.strip()

    def propose(self, name: str) -> None:
        """Put a name into the field, unless the user's own stands there."""
        entry = self.query_one(Input)
        if entry.value == self._proposed:
            entry.value = self._proposed = name

    def focus_button(self) -> None:
        self.query_one(ActionButton).focus()
