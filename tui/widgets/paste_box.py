"""PasteBox: takes a paste of many lines, or a typed path or command. What is no text is refused and changes nothing."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import TextArea
from trainwiz.core.importing.pasted import pasted_text
from trainwiz.core.importing.report import NotImportable

LONGEST_WRAPPED = 20_000
"""Characters; wrapping a longer text takes so long that it is felt."""


class PasteBox(TextArea):
    """Enter ends a line, and asks the window to go on where the text is done."""

    class GoOn(Message):
        """Enter, at the end of the text."""

    class Refused(Message):
        """A paste that was not taken."""

        def __init__(self, message: str) -> None:
            super().__init__()
            self.message = message

    def __init__(self, placeholder: str) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=placeholder)
        self.cursor_blink = False
        self.is_done = False
        """What stands here was read: enter at its end goes on."""

    def insert_text(self, text: str) -> None:
        """As a paste does."""
        try:
            pasted_text(self.text + text)
            text = pasted_text(text)
        except NotImportable as error:
            self.post_message(self.Refused(" ".join(finding.message for finding in error.findings)))
            return
        self.soft_wrap = len(self.text) + len(text) <= LONGEST_WRAPPED
        result = self.replace(text, *self.selection)
        self.move_cursor(result.end_location)

    def put_path(self, path: str) -> None:
        """A line above the text: paths stand first."""
        self.insert(f"{path}\n", (0, 0))
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        # Here and nowhere else: the application would hand it on once more.
        event.prevent_default()
        event.stop()
        self.insert_text(event.text)

    async def _on_key(self, event: events.Key) -> None:
        is_end = event.key == "enter" and self.cursor_location == self.document.end
        goes_on = is_end and (self.is_done or self.document.line_count == 1)
        if goes_on and self.is_done:
            event.prevent_default()
            event.stop()
        else:
            # Of a paste that a terminal types key by key the end of the first line is no wish to go on: it is kept.
            await super()._on_key(event)
        if goes_on:
            self.post_message(self.GoOn())
