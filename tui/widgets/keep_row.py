"""KeepRow: the name under which something is kept, and the button that keeps it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static
from trainwiz.core.language import tr
from trainwiz.tui.widgets.action_button import ActionButton

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
