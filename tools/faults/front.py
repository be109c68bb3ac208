"""Front: a command of trainwiz in a terminal of its own, and all that it showed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path

ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_]|[()][0-9A-B])")
TAKE_TERMINAL = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Front:
    """Started at once. The terminal is its controlling one: closing it hangs the command up."""

    def __init__(self, words: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        command = [sys.executable, "-c", TAKE_TERMINAL, sys.executable, "-m", "trainwiz.tui", *words]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(theirs)
        self._seen = bytearray()
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._closed:
            if not select.select([self._ours], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(self._ours, 65_536)
            except OSError:
                return
            if not part:
                return
            self._seen += part

    def text(self) -> str:
        """What was drawn, without the terminal's control sequences."""
        return ESCAPES.sub("", bytes(self._seen).decode("utf-8", "replace"))

    def type(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._ours, keys)

    def close_terminal(self) -> None:
        """As a terminal window that is closed."""
        if not self._closed:
            self._closed = True
            self._reader.join(2.0)
            os.close(self._ours)

    def wait(self, patience_s: float) -> int | None:
        """The exit code, negative for a signal; None when it did not end in time."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        time.sleep(0.05)
        return code

    def end(self) -> None:
        """Whatever is left of it is killed."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._closed:
            self._reader.join(1.0)
        self.close_terminal()
