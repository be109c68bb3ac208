"""A log as a source."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainwiz.core.errors import os_reason
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.telemetry.log import TELLING_WORDS, Levels, LogLevel, LogLine, parts_of

CHUNK_BYTES = 512 * 1024
PAGE_BYTES = 48 * 1024
"""Read at once where all lines are wanted: a page of them needs no more."""
LONGEST_LINE_BYTES = 4 * CHUNK_BYTES
"""A longer line is cut, so that a file without line ends is read in bounded memory."""
SEARCH_S = 0.25
LEVEL_WORDS = tuple(word.encode() for word in TELLING_WORDS)
GLOG_STARTS = (b"\nE", b"\nF", b"\nW", b"[E", b"[F", b"[W")


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line and the bytes of the file that hold it. Parts of one written line share them."""

    start: int
    end: int
    line: LogLine


@dataclass(frozen=True, slots=True)
class LogPart:
    """What was found in the bytes [start, end) of a log of `size` bytes, in file order.

    To go on: `before=part.start`, or `after=part.end`. A last line without its end is among `lines`,
    but lies behind `end`, so that it is read again when it is whole.
    """

    lines: tuple[PlacedLine, ...]
    start: int
    end: int
    size: int
    problem: str | None = None
    """One sentence when the log is there and cannot be read."""

    @property
    def at_start(self) -> bool:
        """Nothing lies before it."""
        return self.start == 0

    @property
    def at_end(self) -> bool:
        """Only an unfinished line may lie behind it."""
        return self.end >= self.size or (bool(self.lines) and self.lines[-1].end >= self.size)


class LogFile:
    """Reads nothing until it is asked; safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def search(
        self,
        text: str = "",
        level: LogLevel | None = None,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 200,
        seconds: float = SEARCH_S,
    ) -> LogPart:
        """At most about `limit` lines that hold `text` (any case) and have `level`; errors are warnings too.

        Looks forward from the byte `after`, else back from the byte `before`, else back from the end.
        Both are starts of lines, as a LogPart or a PlacedLine gives them. Ends after `seconds` also with
        fewer lines: ask again from where the part ends. Without a text and a level it reads the log.
        Versions of one progress bar are one line. Raises nothing.
        """
        wanted = _Wanted(text, level)
        deadline = time.monotonic() + seconds
        try:
            with open_file(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if after is not None:
                    return _forward(file, wanted, min(max(0, after), size), size, limit, deadline)
                stop = size if before is None else min(max(0, before), size)
                return _backward(file, wanted, stop, size, limit, deadline)
        except FileNotFoundError:
            return LogPart((), 0, 0, 0)
        except OSError as error:
            return LogPart((), 0, 0, 0, tr("{path} cannot be read: {reason}.", path=self.path, reason=os_reason(error)))


class _Wanted:
    """What is looked for, and whether a piece of the file can hold it at all."""

    def __init__(self, text: str, level: LogLevel | None) -> None:
        self.level = level
        self._text = text.casefold()
        # Only ASCII has the same bytes in every case.
        self._needle = self._text.encode() if text.isascii() else b""
        self.everything = not text and level is None
        self.chunk_bytes = PAGE_BYTES if self.everything else CHUNK_BYTES

    def takes(self, line: LogLine) -> bool:
        return self._text in line.text.casefold() and (
            self.level is None or line.level == self.level or (self.level, line.level) == ("warning", "error")
        )

    def may_be_in(self, data: bytes) -> bool:
        """False where no line of `data` can be wanted; that costs a fraction of looking at its lines."""
        if self.everything:
            return True
        lower = data.lower()
        if self.level in ("error", "warning"):
            levels = any(word in lower for word in LEVEL_WORDS) or any(start in data for start in GLOG_STARTS)
            # The first byte has no line end before it.
            if not levels and data[:1] not in (b"E", b"F", b"W"):
                return False
        # Escape codes may part what is seen as one word.
        return not self._needle or self._needle in lower or b"\x1b" in data


def _forward(file: BinaryIO, wanted: _Wanted, start: int, size: int, limit: int, deadline: float) -> LogPart:
    found: list[PlacedLine] = []
    at = start
    while at < size and len(found) < limit:
        data = _whole_lines(file, at, size, wanted.chunk_bytes)
        found += _lines_of(data, at, wanted)
        if not data.endswith(b"\n") and at + len(data) >= size:
            # The unfinished last line is shown, and read again.
            at += data.rfind(b"\n") + 1
            break
        at += len(data)
        if time.monotonic() > deadline:
            break
    if len(found) > limit:
        # All parts of the last written line stay together.
        while limit < len(found) and found[limit].start == found[limit - 1].start:
            limit += 1
        if limit < len(found):
            at = found[limit].start
            del found[limit:]
    return LogPart(tuple(found), start, at, size)


def _backward(file: BinaryIO, wanted: _Wanted, stop: int, size: int, limit: int, deadline: float) -> LogPart:
    parts: list[list[PlacedLine]] = []
    count, at = 0, stop
    while at > 0 and count < limit:
        start, data = _lines_before(file, at, wanted.chunk_bytes)
        lines = _lines_of(data, start, wanted)
        parts.append(lines)
        count += len(lines)
        at = start
        if time.monotonic() > deadline:
            break
    found = [line for part in reversed(parts) for line in part]
    if count > limit:
        first = count - limit
        while first > 0 and found[first - 1].start == found[first].start:
            first -= 1
        at = found[first].start if first else at
        found = found[first:]
    end = stop
    if stop == size and found and found[-1].end == size and not _ends_line(file, size):
        end = found[-1].start
    return LogPart(tuple(found), at, end, size)


def _ends_line(file: BinaryIO, at: int) -> bool:
    file.seek(at - 1)
    return file.read(1) == b"\n"


def _whole_lines(file: BinaryIO, start: int, size: int, length: int) -> bytes:
    """Lines from `start` on, about `length` bytes of them; without a line end only at the end of the file or when cut."""
    file.seek(start)
    data = file.read(length)
    while b"\n" not in data and start + len(data) < size and len(data) < LONGEST_LINE_BYTES:
        more = file.read(CHUNK_BYTES)
        if not more:
            break
        data += more
    if start + len(data) >= size:
        return data
    cut = data.rfind(b"\n") + 1
    return data[:cut] if cut else data


def _lines_before(file: BinaryIO, stop: int, length: int) -> tuple[int, bytes]:
    """Whole lines that end at `stop`, and where they begin."""
    while True:
        start = max(0, stop - length)
        file.seek(start)
        data = file.read(stop - start)
        if start == 0:
            return 0, data
        # The line end right before `stop` belongs to the last line.
        cut = data.find(b"\n", 0, len(data) - 1) + 1
        if cut or length >= LONGEST_LINE_BYTES:
            return start + cut, data[cut:]
        length *= 2


def _lines_of(data: bytes, start: int, wanted: _Wanted) -> list[PlacedLine]:
    """The wanted lines of `data`; of each progress bar the newest version, and those that reached their end."""
    if not wanted.may_be_in(data):
        return []
    lines: list[PlacedLine | None] = []
    bars: dict[str, tuple[int, bool]] = {}
    last_text = -1
    levels = Levels()
    for at, raw in _written_lines(data, start):
        for text, bar in parts_of(raw.decode("utf-8", errors="replace")):
            if bar is None:
                last_text = len(lines)
                line = LogLine(text, levels.level(text))
            else:
                place, done = bars.get(bar.key, (-1, True))
                if place >= 0 and (place > last_text or bar.done or not done):
                    lines[place] = None
                bars[bar.key] = (len(lines), bar.done)
                line = LogLine(text, "progress")
            lines.append(PlacedLine(at, min(at + len(raw) + 1, start + len(data)), line))
    return [placed for placed in lines if placed is not None and (wanted.everything or wanted.takes(placed.line))]


def _written_lines(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines of `data` and where each begins."""
    at = start
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        yield at, line
        at += len(line) + 1
