"""The lines of a log as a screen shows them: plain, with their level, each progress bar once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Literal

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
    r"(?P<name>.*?)\b\d{1,3}%\|[^|]*"
    r"(?:\|\s*[\d.,]+\w?/(?P<total>[\d.,]+\w?|\?)\s*(?:\[[^\]\n]*\]?)?)?"
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


def bar_of(text: str) -> tuple[str, int] | None:
    """The progress bar (of tqdm) that the line is or begins with: a key that all its versions have, and its length."""
    if "%|" in text:
        if (found := _TQDM.match(text)) is None:
            return None
        # Without a count behind it, the whole line is the bar.
        return f"{found['name'].strip()}/{found['total']}", found.end() if found["total"] else len(text)
    if "[" in text and ("/s" in text or "s/" in text) and (found := _TQDM_OPEN.match(text)) is not None:
        return f"{found['name'].strip()}/?", found.end()
    return None


def parts_of(line: str) -> Iterator[tuple[str, str | None]]:
    """The plain lines that a terminal shows of one written line, each with the key of the bar that it is.

    Of a line that is rewritten (carriage return, or the cursor goes up to a bar above) these are the last version of each
    progress bar, and its last other text; what was printed behind a bar is a line of its own.
    """
    texts = [_plain(line)]
    if "\r" in line or "\x1b[" in line:
        texts = [text for part in _REWRITTEN.split(line)[-MOST_VERSIONS:] if (text := _plain(part))]
    shown: dict[str | None, tuple[str, str]] = {}
    for text in texts or [""]:
        key, length = bar_of(text) or (None, len(text))
        shown.pop(key, None)
        shown[key] = text[:length].rstrip(), text[length:].strip()
    for key, (text, behind) in shown.items():
        yield text, key
        if behind:
            yield behind, None


def _plain(text: str) -> str:
    return plain_text(text.expandtabs(4) if "\t" in text else text, LONGEST_LINE).rstrip()


KEPT_LINES = 5_000
MOST_BARS = 64


class Folded:
    """A newer version of a progress bar takes the place of the older one, at the end."""

    def __init__(self) -> None:
        self.lines: dict[int, LogLine] = {}
        self._number = 0
        self._bars: dict[str, int] = {}
        """Key -> number of the line that shows the bar."""
        self._open = set[str]()
        """Ranks inside of a traceback, which is an error from its head to its exception."""

    def add(self, written: str) -> None:
        for text, bar in parts_of(written):
            self._number += 1
            if bar is not None:
                self.lines.pop(self._bars.pop(bar, 0), None)
                self._bars[bar] = self._number
            self.lines[self._number] = LogLine(text, "progress" if bar is not None else self._level_of(text))
            if len(self.lines) > KEPT_LINES:
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
    """The newest KEPT_LINES lines of a log that arrives in pieces, or that `tail` reads."""

    def __init__(self, tail: TextTail | None = None) -> None:
        self.tail = tail
        self.clear()

    def clear(self) -> None:
        """Begin again, as with another file."""
        self._folded = Folded()
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
        for line in lines[-2 * KEPT_LINES :]:
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
            self._shown = tuple(folded.lines.values())
        return self._shown
