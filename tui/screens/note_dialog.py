"""NoteDialog: one line to keep beside the run."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from trainwiz.core.language import tr
from trainwiz.core.run.notes import LONGEST_NOTE, NOTES_JSONL
from trainwiz.tui.keys import bindings


class NoteDialog(ModalScreen[str | None]):
    """Answers the text, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("edit")]
    AUTO_FOCUS = "Input"

    DEFAULT_CSS = """
    NoteDialog { align: center middle; background: $background 60%; }
    NoteDialog > Vertical {
        width: 76; max-width: 96%; height: auto; background: $surface; border: round $accent; padding: 1 2;
    }
    NoteDialog Static { height: auto; }
    NoteDialog Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    NoteDialog .hint { color: $muted; }
    """

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(tr("Note on this run"), "bold"), markup=False)
            entry = Input(placeholder=tr("what to remember"), max_length=LONGEST_NOTE, compact=True)
            entry.cursor_blink = False
            yield entry
            hint = tr("enter keeps it in {file} with the time and the step   esc leaves", file=NOTES_JSONL)
            yield Static(hint, classes="hint", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_accept()

    def action_accept(self) -> None:
        """An empty line is no note."""
        self.dismiss(self.query_one(Input).value.strip() or None)

    def action_cancel(self) -> None:
        self.dismiss(None)
