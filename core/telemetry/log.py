"""LogLines: the last lines of a log as plain text: no escape codes, progress bars folded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from trainwiz.core.plain import plain_text

KEPT_LINES = 1_000
LONGEST_LINE = 2_000


LogLevel = Literal["error", "warning", "info", "progress"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as plain text, with what its words say of its weight."""

    text: str
    level: LogLevel = "info"


def fold_line(line: str) -> str:
    """What a terminal shows of a line that was rewritten with carriage returns: its last version."""
    versions = [version for version in line.split("\r") if version.strip()]
    return plain_text(versions[-1].expandtabs(4) if versions else "")[:LONGEST_LINE].rstrip()


class LogLines:
    """The newest KEPT_LINES lines of a log that arrives in pieces. `version` changes with the content."""

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=kept)
        self._half = ""
        self.version = 0

    def feed(self, text: str) -> None:
        if not text:
            return
        self.version += 1
        *lines, half = (self._half + text).split("\n")
        # Only the last version of a progress bar can still matter.
        if len(half) > LONGEST_LINE:
            half = "\r" + half[-LONGEST_LINE:]
        self._half = half
        maxlen = self._lines.maxlen or KEPT_LINES
        for line in lines[-maxlen:]:
            self._lines.append(fold_line(line))

    def clear(self) -> None:
        self._lines.clear()
        self._half = ""
        self.version += 1

    def lines(self) -> tuple[LogLine, ...]:
        """All kept lines, the unfinished last one (a progress bar) included."""
        half = fold_line(self._half)
        return tuple(LogLine(line) for line in ((*self._lines, half) if half else self._lines))
