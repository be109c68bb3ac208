"""The terminal as Textual drives it, without the ten wake-ups a second with which it looks for keys."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from typing import IO, Any, cast

from textual import constants
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from trainwiz.core.errors import EXIT_STOPPED
from trainwiz.tui.paste_filter import PasteFilter

TICK_S = 0.1
"""How often the parser is asked whether an escape that came alone was the key, as Textual does all the time."""
UNDECIDED_S = max(1.0, 2 * constants.ESCAPE_DELAY)
"""How long after the last byte the parser may still wait for the rest of a sequence."""
CHUNK_BYTES = 4096
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WakingEvent(threading.Event):
    """An event that a select() can wait for, too."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        super().set()
        with suppress(BlockingIOError):
            os.write(self._writer, b"!")

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            while os.read(self.reader, CHUNK_BYTES):
                pass


class TakenAway:
    """The file of a terminal that may be gone: what cannot be written is dropped.

    Textual's writing thread would end with the error, and whoever writes after it would wait for it for ever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SleepingDriver(LinuxDriver):
    """Waits for keys until there are some.

    Textual's looks ten times a second, which was a sixth of what a monitor takes that is looked at once a second.
    """

    def start_application_mode(self) -> None:
        # Made here and not in __init__: a driver that was never started leaves no open files behind.
        if not isinstance(self.exit_event, WakingEvent):
            self.exit_event = WakingEvent()
            self._file = cast(Any, TakenAway(cast(IO[str], self._file)))
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual gives it no types
        # Their default would end the process at once, and leave the shell a terminal without lines, echo and cursor.
        for number in ENDING:
            self._loop.add_signal_handler(number, partial(self._app.exit, return_code=EXIT_STOPPED))

    def stop_application_mode(self) -> None:
        for number in ENDING:
            self._loop.remove_signal_handler(number)
        super().stop_application_mode()

    def release(self) -> None:
        """End both threads, whatever became of the terminal: the process waits for them before it ends."""
        if isinstance(self.exit_event, WakingEvent):
            self.exit_event.set()
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._writer_thread.stop()

    def run_input_thread(self) -> None:
        """Wait for input and dispatch its events, until `exit_event` is set."""
        parser = XTermParser(self._debug)
        # A paste or a key may bring bytes of another encoding.
        decode = getincrementaldecoder("utf-8")("replace").decode
        pasted = PasteFilter()
        assert isinstance(self.exit_event, WakingEvent)
        undecided_until = time.monotonic() + UNDECIDED_S
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self.exit_event.reader, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                decided = time.monotonic() > undecided_until
                ready = {key.fd for key, _ in selector.select(None if decided else TICK_S)}
                if self.fileno in ready:
                    undecided_until = time.monotonic() + UNDECIDED_S
                    data = os.read(self.fileno, CHUNK_BYTES)
                    if not data:
                        # The terminal is gone, or stdin is a pipe that has ended: it would be "ready" for ever.
                        selector.unregister(self.fileno)
                    # Half a character is no text yet; no text would tell the parser that it is over.
                    elif text := pasted.passed(decode(data)):
                        for event in parser.feed(text):
                            self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        with suppress(EOFError, ParseError):
            for _ in parser.feed(""):
                pass
