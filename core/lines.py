"""Growing files and folders looked at at a cost that follows what is new."""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from trainwiz.core.errors import os_reason
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json

READ_BYTES = 1024 * 1024
"""Most that one call reads, so that a file of any size is read in bounded memory."""
LONGEST_LINE_BYTES = 1024 * 1024
TEXT_WINDOW_BYTES = 256 * 1024
FINGERPRINT_BYTES = 64

_NON_FINITE = {
    "NaN": math.nan,
    "nan": math.nan,
    "Infinity": math.inf,
    "inf": math.inf,
    "-Infinity": -math.inf,
    "-inf": -math.inf,
}


class ByteTail:
    """New bytes of a file that another process appends to, truncates, replaces, or has not made yet.

    With a `window_bytes`, a file that is further ahead than that is entered near its end, and
    `skipped_bytes` says how much was passed over.
    `began_anew`: the file turned out to be another one (truncated, replaced, rewritten); what was read before the
    last read no longer holds, and that read began again at the start.
    `behind` is true while more bytes wait than one call returns. `problem` is one sentence when the
    file is there and cannot be read.
    """

    offset: int
    skipped_bytes: int
    _before_offset: bytes

    def __init__(self, path: Path, window_bytes: int | None = None) -> None:
        self.path = path
        self.window_bytes = window_bytes
        self.behind = False
        self.problem: str | None = None
        self._inode: tuple[int, int] | None = None
        self._stamp: tuple[int, int] | None = None
        self._restart()

    def read_bytes(self) -> bytes:
        """New bytes, READ_BYTES or `window_bytes` at most; empty when nothing is new or the file is not there."""
        self.behind = self.began_anew = False
        try:
            with open_file(self.path) as file:
                self.problem = None
                return self._read(file, self.window_bytes or READ_BYTES)
        except FileNotFoundError:
            self.problem = None
        except OSError as error:
            self.problem = tr("Cannot read {path}: {reason}.", path=self.path, reason=os_reason(error))
        return b""

    def _read(self, file: BinaryIO, limit: int) -> bytes:
        status = os.fstat(file.fileno())
        stamp = (status.st_size, status.st_mtime_ns)
        if stamp == self._stamp and self.offset == status.st_size:
            return b""
        inode = (status.st_dev, status.st_ino)
        if self._inode is not None and (
            inode != self._inode or status.st_size < self.offset or not self._same_content(file)
        ):
            self._restart()
        self._inode, self._stamp = inode, stamp
        if self.window_bytes and status.st_size - self.offset > self.window_bytes:
            self._skip_to(status.st_size - self.window_bytes)
        file.seek(self.offset)
        data = file.read(limit)
        self.offset = file.tell()
        self.behind = self.offset < status.st_size
        self._before_offset = (self._before_offset + data[-FINGERPRINT_BYTES:])[-FINGERPRINT_BYTES:]
        return data

    def _skip_to(self, start: int) -> None:
        """The next read begins at `start`, probably inside a line."""
        self.skipped_bytes += start - self.offset
        self.offset = start
        self._before_offset = b""

    def _same_content(self, file: BinaryIO) -> bool:
        # A file that was deleted and made anew often gets the same inode, and may already be longer.
        file.seek(self.offset - len(self._before_offset))
        return file.read(len(self._before_offset)) == self._before_offset

    def _restart(self) -> None:
        self.began_anew = True
        self.offset = 0
        self.skipped_bytes = 0
        self._before_offset = b""


class Seldom:
    """What is dear is done every `every_s` seconds, in large trees as seldom as keeps it below `share` of a core."""

    def __init__(self, every_s: float, share: float = 0.003) -> None:
        self.next_s = 0.0
        self._every_s = every_s
        self._share = share

    def do(self, what: Callable[[], object]) -> bool:
        """Whether it was time for it."""
        if time.monotonic() < self.next_s:
            return False
        started_s = time.thread_time()
        what()
        self.next_s = time.monotonic() + max(self._every_s, (time.thread_time() - started_s) / self._share)
        return True


def stamp_of(file: Path) -> tuple[int, int] | None:
    """Its size and time (ns): while they are the same the file is; None where it cannot be asked."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def share_read(tails: Iterable[ByteTail]) -> float:
    """Of the bytes that the files have now."""
    read = size = 0
    for tail in tails:
        with contextlib.suppress(OSError):
            size += tail.path.stat().st_size
            read += tail.offset
    return min(1.0, read / size) if size else 1.0


class JsonLinesTail(ByteTail):
    """New objects of a JSON-lines file.

    A half-written last line is kept until its end arrives. A line that is not a JSON object is
    counted in `garbage_lines` and passed over. Bare NaN and Infinity, and the strings "NaN",
    "Infinity", "-Infinity" as values, come back as floats; an integer of more than 64 bits may.
    """

    garbage_lines: int
    _half: bytes
    _in_passed_line: bool

    def read_new(self) -> list[dict[str, Any]]:
        """Objects of the next READ_BYTES at most; call again while `behind` is true."""
        # First, for it may find another file, of which no half a line is known.
        data = self.read_bytes()
        *lines, self._half = (self._half + data).split(b"\n")
        if self._in_passed_line and lines:
            del lines[0]
            self._in_passed_line = False
        if len(self._half) > LONGEST_LINE_BYTES:
            self.garbage_lines += not self._in_passed_line
            self._in_passed_line = True
        if self._in_passed_line:
            self._half = b""
        rows = self._parse_lines(lines)
        if str in {type(value) for row in rows for value in row.values()}:
            for row in rows:
                _put_numbers(row)
        return rows

    def _parse_lines(self, lines: list[bytes]) -> list[dict[str, Any]]:
        try:
            rows = [*map(orjson.loads, lines)]
        except ValueError:
            rows = []
        if set(map(type, rows)) == {dict}:
            return rows
        return [row for line in lines if (row := self._parse(line)) is not None]

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """A line beside one that orjson refuses, or such a one: blank, with a bare NaN or bad UTF-8 in it, garbage."""
        line = line.strip()
        if not line:
            return None
        row = None
        with contextlib.suppress(ValueError, RecursionError):
            try:
                row = orjson.loads(line)
            except ValueError:
                row = json.loads(line.decode("utf-8-sig", errors="replace"))
        if not isinstance(row, dict):
            self.garbage_lines += 1
            return None
        return row

    def _skip_to(self, start: int) -> None:
        super()._skip_to(start)
        self._half = b""
        self._in_passed_line = True

    def _restart(self) -> None:
        super()._restart()
        self.garbage_lines = 0
        self._half = b""
        self._in_passed_line = False


class TextTail(ByteTail):
    """New text of a log, entered near its end and at the start of a line: a viewer shows the last lines."""

    def __init__(self, path: Path, window_bytes: int = TEXT_WINDOW_BYTES) -> None:
        super().__init__(path, window_bytes)

    def read_new(self) -> str:
        """Text that was appended since the last call (at most `window_bytes`); invalid UTF-8 becomes U+FFFD."""
        skipped_before = self.skipped_bytes
        data = self.read_bytes()
        if self.skipped_bytes != skipped_before:
            self._decoder.reset()
            _, newline, rest = data.partition(b"\n")
            data = rest if newline else data
        return self._decoder.decode(data)

    def _restart(self) -> None:
        super()._restart()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")


def _put_numbers(row: dict[str, Any]) -> None:
    """The strings "NaN", "Infinity" and so on as the floats that they mean."""
    for key, value in row.items():
        if isinstance(value, str) and value in _NON_FINITE:
            row[key] = _NON_FINITE[value]


def objects_from_the_end(path: Path, most_bytes: int) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, the last first; what is none is passed over."""
    try:
        with open_file(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            document = parse_json(line)
            if isinstance(document, dict):
                yield document
