"""What a full-screen program does when it is told to end, and when its terminal is taken away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
from functools import partial
from typing import Any

from textual.app import App
from trainwiz.core.errors import EXIT_STOPPED

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 3.0
"""Textual's threads wait for a terminal that is gone for ever: after this the process ends without them."""


def end_with_signals(app: App[Any]) -> None:
    """Leave the screen first, so that the shell gets a terminal with lines, echo and cursor back. Call it in the loop."""
    loop = asyncio.get_running_loop()
    for number in ENDING:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, partial(app.exit, return_code=EXIT_STOPPED))


def end_without_terminal(app: App[Any]) -> None:
    """Let no process stay behind a closed window, a killed tmux or a lost connection. Costs nothing while there is one."""
    threading.Thread(target=_wait_for_hangup, args=(app,), name="terminal", daemon=True).start()


def _wait_for_hangup(app: App[Any]) -> None:
    watched = select.poll()
    watched.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)
    watched.poll()
    threading.Timer(PATIENCE_S, os._exit, (EXIT_STOPPED,)).start()
    with contextlib.suppress(Exception):
        app.call_from_thread(app.exit, return_code=EXIT_STOPPED)
