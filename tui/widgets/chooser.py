"""Chooser: a list over the screen, narrowed by typing; where free text is allowed, the text itself is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import pad
from trainwiz.tui.keys import bindings
from trainwiz.tui.screens.plan_state import Offer

LONGEST_LIST = 300


def matching(offers: Sequence[Offer], text: str) -> list[Offer]:
    """The offers that hold every word of `text`; names that begin with it come first, notes last."""
    text = text.lower().strip()
    words = text.split()
    found = [offer for offer in offers if all(word in _searched(offer) for word in words)]

    def rank(offer: Offer) -> int:
        name = (offer.label or offer.value).lower()
        return 0 if name == text else 1 if name.startswith(text) else 2 if text in name else 3

    return sorted(found, key=rank)[:LONGEST_LIST] if text else found[:LONGEST_LIST]


def _searched(offer: Offer) -> str:
    return f"{offer.value} {offer.label} {offer.note}".lower()


class Chooser(ModalScreen[str | None]):
    """Returns the chosen value, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    Chooser { align: center middle; background: $background 60%; }
    Chooser > Vertical {
        width: 84; max-width: 96%; height: auto; max-height: 86%;
        background: $surface; border: round $accent; padding: 0 1;
    }
    Chooser Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    Chooser OptionList { border: none; height: auto; max-height: 22; background: $surface; padding: 0; }
    Chooser .hint { color: $muted; height: auto; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, offers: Sequence[Offer], current: str, free_text: str = "") -> None:
        """`free_text` says what may be typed that is not in the list; empty: only the list counts."""
        super().__init__()
        self._title = title
        self._offers = tuple(offers)
        self._current = current
        self._free_text = free_text
        self._shown: list[Offer] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            entry = Input(placeholder=self._free_text or tr("type to search"), max_length=4096, compact=True)
            entry.cursor_blink = False
            yield entry
            options: OptionList = OptionList(markup=False)
            options.can_focus = False
            yield options
            yield Static(tr("enter take   ↑↓ move   esc close"), classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill("")
        values = [offer.value for offer in self._shown]
        if self._current in values:
            self.query_one(OptionList).highlighted = values.index(self._current)
        self.query_one(Input).focus()

    def _fill(self, text: str) -> None:
        text = text.strip()
        self._shown = matching(self._offers, text)
        if text and self._free_text and text not in {offer.value for offer in self._shown}:
            typed = Offer(text, tr("use “{text}”", text=plain_text(text, 60)), tr("as you typed it"))
            # What names a file or folder means it, also where a longer name of the list begins with it.
            self._shown.insert(0 if _is_a_path(text) else len(self._shown), typed)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_line(offer)) for offer in self._shown])
        if self._shown:
            options.highlighted = 0

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self.dismiss(self._shown[index].value)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.option_index].value)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._shown:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._shown)

    def action_close(self) -> None:
        self.dismiss(None)


def _is_a_path(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _line(offer: Offer) -> Content:
    label = plain_text(offer.label or offer.value, 200)
    return Content.assemble(pad(label, 26), ("  " + plain_text(offer.note, 200) if offer.note else "", "$muted"))
