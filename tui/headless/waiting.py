"""Waiting: a wait above a second says on the terminal what it is and how long it lasts."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut, pad
from trainwiz.tui.output import is_terminal

SILENT_S = 1.0
TICK_S = 0.5
LONGEST = 78
"""Cells; a line that wraps could not be wiped."""


class Waiting:
    """Context manager; shows "what · 3 s" on stderr while it is a terminal, and wipes it at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        if is_terminal(sys.stderr):
            self._thread = threading.Thread(target=self._show, name="waiting", daemon=True)
            self._thread.start()
        return self

    def say(self, what: str) -> None:
        """What it waits for now; the clock goes on."""
        self._what = what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        began = time.monotonic()
        if self._done.wait(SILENT_S):
            return
        width = 0
        while True:
            waited_s = f"{time.monotonic() - began:.0f}"
            text = cut(plain_text(tr("{what} · {seconds} s", what=self._what, seconds=waited_s)), LONGEST)
            width = max(width, cells(text))
            sys.stderr.write("\r" + pad(text, width))
            sys.stderr.flush()
            if self._done.wait(TICK_S):
                break
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()
