"""Keys that come faster than they are worked off: each one goes where it would have gone had it been typed slowly."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import App
from textual.events import Key
from textual.message_pump import MessagePump
from textual.screen import Screen

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
        if self._task is None and time.monotonic() - self._sent_at > BURST_S:
            await self._send_now(key)
            return
        self._held.append(key)
        if self._task is None:
            self._task = asyncio.create_task(self._send_held())

    async def _send_now(self, key: Key) -> None:
        self._sent_at, self._sent_to = time.monotonic(), self._app.screen
        await self._send(key)

    async def _send_held(self) -> None:
        try:
            while self._held and self._app.is_running:
                await self._settled()
                await self._send_now(self._held.popleft())
        finally:
            self._task = None

    async def _settled(self) -> None:
        """Returns when nothing that the last key brought about waits in a queue, or after LONGEST_WAIT_S."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        for _ in range(ROUNDS):
            for pump in (self._app.focused or self._app.screen).ancestors_with_self:
                await _worked_off(pump, deadline)
        screen = self._app.screen
        automatic = self._app.AUTO_FOCUS if screen.AUTO_FOCUS is None else screen.AUTO_FOCUS
        if screen is not self._sent_to and automatic:
            while self._app.focused is None and time.monotonic() < deadline:
                await asyncio.sleep(0.005)


async def _worked_off(pump: MessagePump, deadline: float) -> None:
    done = asyncio.Event()
    if not pump.call_later(done.set):
        return
    while not done.is_set() and pump.is_running and time.monotonic() < deadline:
        try:
            await asyncio.wait_for(done.wait(), 0.02)
        except TimeoutError:
            continue
