"""The lines of a log as a screen shows them: plain, with their level, each progress bar once."""

from __future__ import annotations

import os
import re
import time
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from trainwiz.core.errors import os_reason
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.lines import TextTail
from trainwiz.core.text import plain_text

LONGEST_LINE = 2_000
"""Characters; what is longer is cut and ends in "…"."""
MOST_VERSIONS = 64
"""Of a line that was rewritten more often, only the last versions are looked at."""

LogLevel = Literal["error", "warning", "info", "progress"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as plain text, with what its words say of its weight."""

    text: str
    level: LogLevel = "info"


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar. Two lines with the same `key` are versions of one bar."""

    key: str
    done: bool
    """It has reached its end."""
    length: int
    """Characters of the line that belong to the bar; what follows was printed behind it."""


# Words without which no line is an error or a warning, in lower case: asking for them is cheap.
TELLING_WORDS = (
    "error", "warn", "exception", "fatal", "critical", "traceback", "memory", "killed", "fault", "died with",
    "core dumped", "sigkill", "sigsegv", "sigabrt", "exitcode",
)  # fmt: skip
TRACEBACK = "Traceback (most recent call last)"

_NAMED = re.compile(r"\b(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
_NAMED_LEVELS: dict[str, LogLevel] = {"DEBUG": "info", "INFO": "info", "WARN": "warning", "WARNING": "warning"}
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|ExceptionGroup)\b(?=$|\(|:(?!\s*[\d.+-]+\s*$))"
    # A measured error ("error: 0.03") is none.
    r"|\b(?:[Ee]rror|[Ff]atal(?: error)?):\s+(?![\d.+-])"
    r"|\bFatal Python error\b"
    r"|\b[Oo]ut [Oo]f [Mm]emory\b|\bCUDA (?:kernel )?errors?\b|\bNCCL error\b"
    r"|\bSegmentation fault\b|\bcore dumped\b|^Killed\b|\bdied with\b|\bSIG(?:KILL|SEGV|ABRT)\b"
    r"|\bexitcode\s*:\s*-?[1-9]"
    r"|\bexception occurred:"
)
_WARNING = re.compile(r"\b[A-Z]\w*Warning\b|\b[Ww]arning:")
# glog, as torch's C++ and torchrun write it: "[W1121 14:02:11 file.cpp:12] ...", "E1121 14:02:11.000 ...".
_GLOG = re.compile(r"\[?([EWF])\d{4} \d\d:\d\d")
_RANK = re.compile(
    r"\[(?:default|rank ?|Rank ?)\d+\]:? ?|\[\d+,\d+\]<std(?:out|err)>: ?|\[\d+\]: ?|\d{1,4}: |\(\w+ pid=\d+\) ?"
)

_TQDM = re.compile(
    r"(?P<name>.*?)\b(?P<percent>\d{1,3})%\|[^|]*"
    r"(?:\|\s*(?P<at>[\d.,]+\w?)/(?P<total>[\d.,]+\w?|\?)\s*(?:\[[^\]\n]*\]?)?)?"
)
_TQDM_OPEN = re.compile(r"(?P<name>.*?)(?<![\w.,])[\d.,]++\w*+(?: [a-z]+)? ?\[\d[\d:]*\d, [^\]\n]*(?:/s|s/)[^\]\n]*\]")
_REWRITTEN = re.compile(r"\r|\x1b\[\d*A")


def split_rank(text: str) -> tuple[str, str]:
    """What a launcher of several ranks put before the line ("[rank1]: ", "[default0]:", "1: "), and the line."""
    found = _RANK.match(text)
    return (found.group(), text[found.end() :]) if found else ("", text)


def level_of(text: str) -> LogLevel:
    """What the words of one line say; a level that the line names itself ("WARNING", "[INFO]") decides."""
    lower = text.lower()
    if any(word in lower for word in TELLING_WORDS):
        named = _NAMED.search(text)
        if named:
            return _NAMED_LEVELS.get(named.group(), "error")
        if TRACEBACK in text or _ERROR.search(text):
            return "error"
        if _WARNING.search(text):
            return "warning"
    glog = _GLOG.match(text)
    return "info" if glog is None else "warning" if glog.group(1) == "W" else "error"


def bar_of(text: str) -> Bar | None:
    """The progress bar (of tqdm) that the line is or begins with."""
    if "%|" in text:
        found = _TQDM.match(text)
        if found is None:
            return None
        total = found["total"]
        done = found["percent"] == "100" if total is None else found["at"] == total
        # Without a count behind it, the whole line is the bar.
        return Bar(f"{found['name'].strip()}/{total}", done, found.end() if total else len(text))
    if "[" in text and ("/s" in text or "s/" in text) and (found := _TQDM_OPEN.match(text)) is not None:
        return Bar(f"{found['name'].strip()}/?", False, found.end())
    return None


def versions_of(line: str) -> list[str]:
    """The plain texts that a terminal showed of one written line, the oldest first.

    A line that is rewritten (carriage return, or the cursor goes up to a bar above) has several:
    of its progress bars the last version of each, and its last other text.
    """
    if "\r" not in line and "\x1b[" not in line:
        return [_plain(line)]
    texts = [text for part in _REWRITTEN.split(line)[-MOST_VERSIONS:] if (text := _plain(part))]
    shown: dict[str, str] = {}
    for text in texts:
        bar = bar_of(text)
        key = "" if bar is None else bar.key
        shown.pop(key, None)
        shown[key] = text
    return list(shown.values()) or [""]


def parts_of(line: str) -> list[tuple[str, Bar | None]]:
    """The lines that one written line shows, each with the bar that it is; what was printed behind a bar is its own."""
    parts: list[tuple[str, Bar | None]] = []
    for text in versions_of(line):
        bar = bar_of(text)
        if bar is None:
            parts.append((text, None))
            continue
        parts.append((text[: bar.length].rstrip(), bar))
        if behind := text[bar.length :].strip():
            parts.append((behind, None))
    return parts


def _plain(text: str) -> str:
    return plain_text(text.expandtabs(4) if "\t" in text else text, LONGEST_LINE).rstrip()


KEPT_LINES = 1_000
MOST_BARS = 64


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line and the bytes of the file that hold it. Parts of one written line share them."""

    start: int
    end: int
    line: LogLine


class Folded:
    """A newer version of a progress bar takes the place of the older one at the end; where something was logged
    between the two, one that had reached its end stays as it was."""

    def __init__(self, kept: int) -> None:
        self.lines: dict[int, PlacedLine] = {}
        self._kept = kept
        self._number = self._last_text = 0
        self._bars: dict[str, tuple[int, bool]] = {}
        """Key -> (number of the line that shows the bar, whether it has reached its end)."""
        self._open = set[str]()
        """Ranks inside of a traceback, which is an error from its head to its exception."""

    def add(self, written: str, start: int = 0, end: int = 0) -> None:
        for text, bar in parts_of(written):
            self._number += 1
            if bar is None:
                line = LogLine(text, self._level_of(text))
                self._last_text = self._number
            else:
                line = LogLine(text, "progress")
                before, done = self._bars.pop(bar.key, (0, True))
                if before > self._last_text or bar.done or not done:
                    self.lines.pop(before, None)
                self._bars[bar.key] = (self._number, bar.done)
            self.lines[self._number] = PlacedLine(start, end, line)
            if len(self.lines) > self._kept:
                del self.lines[next(iter(self.lines))]
            if len(self._bars) > MOST_BARS:
                del self._bars[next(iter(self._bars))]

    def _level_of(self, text: str) -> LogLevel:
        rank, line = split_rank(text)
        if rank in self._open:
            if line[:1] not in ("", " ", "\t"):
                self._open.discard(rank)
            return "error"
        if TRACEBACK in line:
            self._open.add(rank)
            return "error"
        return level_of(line)

    def copy(self) -> Folded:
        other = copy(self)
        other.lines, other._bars, other._open = dict(self.lines), dict(self._bars), set(self._open)
        return other


class LogLines:
    """The newest `kept` lines of a log that arrives in pieces, or that `tail` reads."""

    def __init__(self, tail: TextTail | None = None, kept: int = KEPT_LINES) -> None:
        self.tail, self._kept = tail, kept
        self.clear()

    def clear(self) -> None:
        """Begin again, as with another file."""
        self._folded = Folded(self._kept)
        self._half = ""
        self._shown: tuple[LogLine, ...] | None = None

    def feed(self, text: str) -> None:
        """Take text as it was appended to the log; it may end inside a line."""
        if not text:
            return
        self._shown = None
        *lines, half = (self._half + text).split("\n")
        # Of a line that is still being rewritten, only the last versions can matter.
        self._half = "\r" + half[-2 * LONGEST_LINE :] if len(half) > 4 * LONGEST_LINE else half
        for line in lines[-2 * self._kept :]:
            self._folded.add(line)

    def read(self) -> tuple[LogLine, ...]:
        """All kept lines, with what the file gained."""
        if self.tail is not None:
            text = self.tail.read_new()
            if self.tail.began_anew:
                self.clear()
            self.feed(text)
        return self.lines()

    @property
    def problem(self) -> str | None:
        return None if self.tail is None else self.tail.problem

    def lines(self) -> tuple[LogLine, ...]:
        """All kept lines, the unfinished last one (a progress bar) included; the same object while nothing is new."""
        if self._shown is None:
            folded = self._folded
            if plain_text(self._half).strip():
                # It comes again when it is whole.
                folded = folded.copy()
                folded.add(self._half)
            self._shown = tuple(placed.line for placed in folded.lines.values())
        return self._shown


# LogFile: parts of a log of any size, searched and filtered.

CHUNK_BYTES = 512 * 1024
PAGE_BYTES = 48 * 1024
"""Read at once where all lines are wanted: a page of them needs no more."""
LONGEST_LINE_BYTES = 4 * CHUNK_BYTES
"""A longer line is cut, so that a file without line ends is read in bounded memory."""
SEARCH_S = 0.25
LEVEL_WORDS = tuple(word.encode() for word in TELLING_WORDS)
_GLOG_START = re.compile(rb"^\[?[EWF]\d", re.MULTILINE)


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
        wanted = Wanted(text, level)
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
            return LogPart((), 0, 0, 0, tr("Cannot read {path}: {reason}.", path=self.path, reason=os_reason(error)))


class Wanted:
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
        telling = self.level not in ("error", "warning") or any(word in lower for word in LEVEL_WORDS)
        if not telling and not _GLOG_START.search(data):
            return False
        # Escape codes may part what is seen as one word.
        return not self._needle or self._needle in lower or b"\x1b" in data


def _forward(file: BinaryIO, wanted: Wanted, start: int, size: int, limit: int, deadline: float) -> LogPart:
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


def _backward(file: BinaryIO, wanted: Wanted, stop: int, size: int, limit: int, deadline: float) -> LogPart:
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
    if stop == size and found and found[-1].end == size:
        file.seek(size - 1)
        end = stop if file.read(1) == b"\n" else found[-1].start
    return LogPart(tuple(found), at, end, size)


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


def _lines_of(data: bytes, start: int, wanted: Wanted) -> list[PlacedLine]:
    """The wanted lines of `data`; of each progress bar the newest version, and those that reached their end."""
    if not wanted.may_be_in(data):
        return []
    folded, at = Folded(len(data)), start
    lines = data.split(b"\n")
    for raw in lines if lines[-1] else lines[:-1]:
        folded.add(raw.decode("utf-8", errors="replace"), at, min(at + len(raw) + 1, start + len(data)))
        at += len(raw) + 1
    return [placed for placed in folded.lines.values() if wanted.everything or wanted.takes(placed.line)]
