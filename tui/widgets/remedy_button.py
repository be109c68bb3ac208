"""RemedyButton: one remedy of the plan's findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message
from trainwiz.tui.widgets.text_lines import TextLines

if TYPE_CHECKING:
    from textual import events


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
