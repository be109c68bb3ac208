"""ActionButton: a word in brackets that says what it does, or why it cannot."""

from __future__ import annotations

from textual.app import RenderResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget


class ActionButton(Widget, can_focus=True):
    """Enter (through the screen) or a click presses it."""

    DEFAULT_CSS = """
    ActionButton { width: auto; height: 1; margin: 0 2 0 0; color: $foreground; }
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

    def show(self, label: str) -> None:
        if label != self._label:
            self._label = label
            self.refresh(layout=True)

    def render(self) -> RenderResult:
        return Content(f"[ {self._label} ]")

    def on_click(self) -> None:
        self.post_message(self.Pressed(self))
