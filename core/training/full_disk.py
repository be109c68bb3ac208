"""What a training says while its disk is full: never a reason to end. Room for checkpoints is another matter (DiskGuard)."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from trainwiz.core.errors import NO_ROOM

MOST_KEPT_LINES = 100_000


class LastingOutput(io.RawIOBase):
    """A file descriptor; what it has no room for is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        left = content
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                break
        return len(content)


def let_output_be_dropped() -> None:
    """train.log may lie on a full disk: a line that finds no room there is lost, and the training goes on."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = LastingOutput(descriptor)
        text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[type-var]
        setattr(sys, name, text)


class LastingLines:
    """Lines at the end of a file. What finds no room is kept in memory and written, in order, before the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: list[str] = []

    def write(self, line: str) -> None:
        """`line` without its end. Raises OSError for every reason but lack of room."""
        self._kept = [*self._kept, line][-MOST_KEPT_LINES:]
        self.flush()

    def flush(self) -> None:
        """Try again to write what was kept. Raises OSError as `write` does."""
        if not self._kept:
            return
        content = "".join(f"{one}\n" for one in self._kept).encode()
        try:
            with self._path.open("ab", buffering=0) as file:
                whole = file.seek(0, os.SEEK_END)
                written = file.write(content)
                if written < len(content):
                    # Half a line would spoil the one after it.
                    file.truncate(whole)
                    return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return
        self._kept = []
