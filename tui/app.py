"""The Textual application that every full-screen command runs; it imports nothing heavy itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.events import Event, Key
from textual.filter import LineFilter
from textual.screen import Screen
from trainwiz.core.errors import EXIT_STOPPED
from trainwiz.core.language import tr, use_language
from trainwiz.tui.keys import KeyBinding, bindings, keys_of, owner_of
from trainwiz.tui.theme import PALETTES, THEMES, AsciiFilter, default_theme_name, marks, wants_ascii

# Keys that come faster than they are worked off: each one goes where it would have gone had it been typed slowly.

BURST_S = 0.05
"""Nobody types two keys so fast: they come from a paste, a script or a slow line."""
LONGEST_WAIT_S = 0.3
"""What a key has not brought about by then (a dialog, say) is something that works in the background."""
ROUNDS = 2
"""A key may become a message to the same widget, which goes up from there."""


class TypedKeys:
    """Holds the keys of a burst back until what the one before them brought about has happened.

    Textual hands a burst to the screen that is there when it arrives. Where its first key opens a dialog, the
    others are dropped; where one closes it, those after it still go to the dialog.
    """

    def __init__(self, app: App[Any], send: Callable[[Key], Awaitable[None]]) -> None:
        self._app, self._send = app, send
        self._held: deque[Key] = deque()
        self._task: asyncio.Task[None] | None = None
        self._sent_at = float("-inf")
        self._sent_to: Screen[Any] | None = None

    async def type(self, key: Key) -> None:
        """Send it now or, within a burst, in its turn."""
        self._held.append(key)
        if self._task is None and time.monotonic() - self._sent_at > BURST_S:
            await self._send_next()
        elif self._task is None:
            self._task = asyncio.create_task(self._send_held())

    async def _send_next(self) -> None:
        self._sent_at, self._sent_to = time.monotonic(), self._app.screen
        await self._send(self._held.popleft())

    async def _send_held(self) -> None:
        try:
            while self._held and self._app.is_running:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_WAIT_S):
                        await self._settled()
                await self._send_next()
        finally:
            self._task = None

    async def _settled(self) -> None:
        """Returns when nothing that the last key brought about waits in a queue."""
        for _ in range(ROUNDS):
            for pump in (self._app.focused or self._app.screen).ancestors_with_self:
                done = asyncio.Event()
                if pump.call_later(done.set):
                    await done.wait()
        while self._app.screen is not self._sent_to and self._app.focused is None:
            await asyncio.sleep(0.005)


# What a full-screen program does when it is told to end, and when its terminal is taken away.

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 3.0
"""Textual's threads wait for a terminal that is gone for ever: after this the process ends without them."""


def end_with_terminal(app: App[Any]) -> None:
    """Leave the screen on a signal, so that the shell gets a terminal with lines, echo and cursor back; and let no process
    stay behind a closed window, a killed tmux or a lost connection, which costs nothing while there is one. Call it in
    the loop."""
    leave = partial(app.exit, return_code=EXIT_STOPPED)
    loop = asyncio.get_running_loop()
    for number in ENDING:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, leave)

    def wait_for_hangup() -> None:
        watched = select.poll()
        watched.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)
        watched.poll()
        threading.Timer(PATIENCE_S, os._exit, (EXIT_STOPPED,)).start()
        with contextlib.suppress(Exception):
            app.call_from_thread(leave)

    threading.Thread(target=wait_for_hangup, name="terminal", daemon=True).start()


HERE = Path(__file__).parent


class TrainwizApp(App[int]):
    """Shows the screen that `first_screen` makes; the result of `run()` is the exit code.

    A screen does its slow imports and reads in a worker that it starts after its first frame
    (`call_after_refresh`), so that something can be read at once.
    """

    TITLE = "trainwiz"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("app")]
    ENABLE_COMMAND_PALETTE = False
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
        marks.ascii_only = wants_ascii() if ascii_only is None else ascii_only
        if marks.ascii_only:
            # Chinese would be nothing but question marks.
            use_language("en")
        self._typed = TypedKeys(self, super().on_event)
        self.farewell = ""
        """What the command prints after the screen is gone."""
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = default_theme_name()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and in ASCII mode one that replaces every other character."""
        filters = [*super().get_line_filters()]
        return [*filters, AsciiFilter()] if marks.ascii_only else filters

    def _key_rows(self) -> list[KeyBinding]:
        """A screen says in `key_rows` which keys work now."""
        rows: Callable[[], list[KeyBinding]] = getattr(self.screen, "key_rows", lambda: [*keys_of("app")])
        return rows()

    def action_command_palette(self) -> None:
        """The keys that work now as a list of actions that typing narrows."""
        from trainwiz.tui.screens.plan_state import Offer
        from trainwiz.tui.widgets.chooser import Chooser

        screen, focused = self.screen, self.focused
        rows = {row.id: row for row in self._key_rows() if row.id != "app.palette"}
        offers = [Offer(row.id, f"{row.words} ({row.shown_key})", row.sentence) for row in rows.values()]

        async def run(chosen: str | None) -> None:
            if chosen is not None:
                await self.run_action(rows[chosen].action, owner_of(rows[chosen], screen, focused))

        self.push_screen(Chooser(tr("all actions"), offers, ""), run)

    def on_mount(self) -> None:
        if not self.is_headless and hasattr(select, "poll"):
            end_with_terminal(self)

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
        self.notify(tr("Press ctrl+q to quit. A run that was started continues."), markup=False)

    def action_next_theme(self) -> None:
        names = list(PALETTES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def action_help(self) -> None:
        """A screen with an `action_help` of its own explains what has the focus; elsewhere all keys are listed."""
        explain = getattr(self.screen, "action_help", None)
        if explain is not None:
            explain()
        else:
            from trainwiz.tui.widgets.frame import HelpCard

            self.push_screen(HelpCard("trainwiz", (), self._key_rows()))
