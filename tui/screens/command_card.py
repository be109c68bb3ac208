"""CommandCard: the commands of a run as text, and a digit copies one into the clipboard of the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.widgets.monitor_panel import frame_title

HINT = mark("A digit copies. Where the terminal takes no copy (OSC 52), select the line with shift and the mouse.")


class CommandCard(ModalScreen[None]):
    """The first command is copied when the card opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("dialog"),
        *bindings("command"),
    ]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    CommandCard { align: center middle; background: $background 60%; }
    CommandCard > VerticalScroll {
        width: 104; max-width: 96%; height: auto; max-height: 92%;
        background: $surface; border: round $accent; border-title-color: $muted; padding: 1 2;
    }
    CommandCard Static { height: auto; }
    CommandCard #copied { color: $accent; margin-top: 1; }
    CommandCard .hint { color: $muted; }
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        """`commands`: what it does -> the command."""
        super().__init__()
        self._commands = dict(commands)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("command"))
            for number, (what, command) in enumerate(self._commands.items(), start=1):
                yield Static(Content.assemble((f"{number}  {plain_text(what)}", "$muted")), markup=False)
                yield Static(Content(plain_text(command)), markup=False)
            yield Static("", id="copied", markup=False)
            yield Static(tr(HINT), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.action_copy(1)

    def action_copy(self, number: int) -> None:
        """Hand command `number` to the terminal."""
        entries = list(self._commands.items())
        if not 1 <= number <= len(entries):
            return
        what, command = entries[number - 1]
        self.app.copy_to_clipboard(command)
        self.query_one("#copied", Static).update(tr("Copied {number}: {what}.", number=number, what=plain_text(what)))

    def action_close(self) -> None:
        self.dismiss(None)
