"""HelpCard: what the focused thing is, why it matters, a safe choice, its cost; and the keys of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import pad
from trainwiz.tui.keys import KeyBinding, bindings

KEY_WIDTH = 10


class HelpCard(ModalScreen[None]):
    """`parts` are (heading, text) pairs; `rows` are the keys to list."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog")]

    DEFAULT_CSS = """
    HelpCard { align: center middle; background: $background 60%; }
    HelpCard > VerticalScroll {
        width: 84; max-width: 96%; height: auto; max-height: 90%;
        background: $surface; border: round $accent; padding: 0 1;
    }
    HelpCard Static { height: auto; }
    """

    def __init__(self, title: str, parts: Sequence[tuple[str, str]], rows: Sequence[KeyBinding]) -> None:
        super().__init__()
        self._title = title
        self._parts = tuple(parts)
        self._rows = tuple(rows)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content.styled(plain_text(self._title), "bold"), markup=False)
            for heading, text in self._parts:
                if text:
                    shown = "\n".join(plain_text(line) for line in text.splitlines())
                    yield Static(Content.assemble("\n", (heading, "$accent"), "\n", shown), markup=False)
            lines = [
                Content.assemble("  " + pad(row.shown_key, KEY_WIDTH), (row.sentence, "$muted")) for row in self._rows
            ]
            yield Static(Content.assemble("\n", (tr("Keys"), "$accent"), "\n", Content("\n").join(lines)), markup=False)

    def action_close(self) -> None:
        self.dismiss(None)
