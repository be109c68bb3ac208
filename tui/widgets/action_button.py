"""ActionButton: a word in brackets that says what it does, or why it cannot."""

from __future__ import annotations

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from trainwiz.tui.widgets.field_row import wrap


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
