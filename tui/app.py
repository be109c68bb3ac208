"""The Textual application that every full-screen command runs; it imports nothing heavy itself."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.events import Event, Key
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widgets import Input
from trainwiz.core.language import tr, use_language
from trainwiz.tui.ascii_filter import AsciiFilter
from trainwiz.tui.keys import bindings, keys_of
from trainwiz.tui.palette import KeyProvider
from trainwiz.tui.theme import THEMES, Marks, default_theme_name, marks, wants_ascii
from trainwiz.tui.typed_keys import TypedKeys

HERE = Path(__file__).parent


class TrainwizApp(App[int]):
    """Shows the screen that `first_screen` makes; the result of `run()` is the exit code.

    A screen does its slow imports and reads in a worker that it starts after its first frame
    (`call_after_refresh`), so that something can be read at once.
    """

    TITLE = "trainwiz"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("app")]
    COMMANDS = {KeyProvider}
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        HERE / "trainwiz.tcss",
        HERE / "screens" / "plan.tcss",
        HERE / "screens" / "monitor.tcss",
    ]

    def __init__(self, first_screen: Callable[[], Screen[Any]], *, ascii_only: bool | None = None) -> None:
        super().__init__()
        if self.console.is_dumb_terminal:
            # Rich takes 80 x 25 for it and Textual the real size: the screen would be laid out for both in turn, for ever.
            self.console.size = shutil.get_terminal_size()
        self._first_screen = first_screen
        self.ascii_only = wants_ascii() if ascii_only is None else ascii_only
        if self.ascii_only:
            # Chinese would be nothing but question marks.
            use_language("en")
        self._typed = TypedKeys(self, super().on_event)
        self.farewell = ""
        """What the command prints after the screen is gone."""
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = default_theme_name()
        for name in set(self.available_themes) - {theme.name for theme in THEMES}:
            self.unregister_theme(name)

    @property
    def marks(self) -> Marks:
        """The marks that this terminal can draw."""
        return marks(self.ascii_only)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and in ASCII mode one that replaces every other character."""
        filters = [*super().get_line_filters()]
        return [*filters, AsciiFilter()] if self.ascii_only else filters

    def action_command_palette(self) -> None:
        """Textual's, with a placeholder that has a translation and a cursor that stands still."""
        if not any(isinstance(screen, CommandPalette) for screen in self.screen_stack):
            palette = CommandPalette(id="--command-palette", placeholder=tr("Search for commands…"))
            self.push_screen(palette)
            # As in all our fields: a cursor that blinks draws twice a second.
            palette.call_after_refresh(lambda: setattr(palette.query_one(Input), "cursor_blink", False))

    def on_mount(self) -> None:
        if not self.is_headless and hasattr(select, "poll"):
            from trainwiz.tui.terminal_gone import end_with_signals, end_without_terminal

            end_with_signals(self)
            end_without_terminal(self)

    def get_default_screen(self) -> Screen[Any]:
        return self._first_screen()

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key) and not event.is_forwarded:
            await self._typed.type(event)
        else:
            await super().on_event(event)

    def action_leave(self) -> None:
        """Leave with exit code 0; the run of a monitor goes on. A screen with something to lose asks first."""
        getattr(self.screen, "ask_to_leave", lambda: self.exit(0))()

    def action_help_quit(self) -> None:
        """Ctrl-C leaves nothing and stops nothing; it says how to leave. In an editor q is a letter, ctrl+q is not."""
        self.notify(tr("ctrl+q leaves; a run that was started goes on."), markup=False)

    def leave_with(self, words: str) -> None:
        """Leave with exit code 0 and say something in the terminal."""
        self.farewell = words
        self.exit(0)

    def action_next_theme(self) -> None:
        names = [theme.name for theme in THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def action_help(self) -> None:
        """A screen with an `action_help` of its own explains what has the focus; elsewhere all keys are listed."""
        explain = getattr(self.screen, "action_help", None)
        if explain is not None:
            explain()
        else:
            from trainwiz.tui.widgets.help_card import HelpCard

            rows = getattr(self.screen, "key_rows", lambda: keys_of("app"))
            self.push_screen(HelpCard("trainwiz", (), rows()))
