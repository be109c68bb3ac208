"""LogLines: the last lines of a log that arrives in pieces, progress bars folded into one line each."""

from __future__ import annotations

import dataclasses
from collections import deque
from pathlib import Path

from trainwiz.core.telemetry.log import LONGEST_LINE, Bar, Levels, LogLine, parts_of
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.tail import TextTail

KEPT_LINES = 1_000
MOST_BARS = 64


class LogLines:
    """The newest `kept` lines. `version` changes with the content.

    A newer version of a progress bar takes the place of the older one; where something was logged
    between the two, the bar moves down to the end, and one that had reached its end stays as it was.
    """

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._kept = kept
        self.version = 0
        self._begin()

    def _begin(self) -> None:
        self._lines: deque[LogLine | None] = deque(maxlen=self._kept)
        self._fed = 0
        self._last_text = 0
        self._bars: dict[str, tuple[int, bool]] = {}
        """Key -> (number of the line that shows the bar, whether it has reached its end)."""
        self._levels = Levels()
        self._half = ""
        self._shown: tuple[LogLine, ...] | None = None

    def feed(self, text: str) -> None:
        """Take text as it was appended to the log; it may end inside a line."""
        if not text:
            return
        self.version += 1
        self._shown = None
        *lines, half = (self._half + text).split("\n")
        # Of a line that is still being rewritten, only the last versions can matter.
        self._half = "\r" + half[-2 * LONGEST_LINE :] if len(half) > 4 * LONGEST_LINE else half
        for line in lines[-2 * self._kept :]:
            for part, bar in parts_of(line):
                self._add(part, bar)

    def clear(self) -> None:
        """Begin again, as with another file."""
        self._begin()
        self.version += 1

    def lines(self) -> tuple[LogLine, ...]:
        """All kept lines, the unfinished last one (a progress bar) included; the same object while nothing is new."""
        if self._shown is None:
            self._shown = self._with_half()
        return self._shown

    def _add(self, text: str, bar: Bar | None) -> None:
        if bar is not None:
            self._add_bar(bar, LogLine(text, "progress"))
            return
        self._append(LogLine(text, self._levels.level(text)))
        self._last_text = self._fed

    def _add_bar(self, bar: Bar, line: LogLine) -> None:
        number, done = self._bars.get(bar.key, (0, True))
        place = number - 1 - (self._fed - len(self._lines))
        if number and place >= 0:
            if number > self._last_text:
                self._lines[place] = line
                self._bars[bar.key] = (number, bar.done)
                return
            if not done or bar.done:
                self._lines[place] = None
        self._append(line)
        self._bars.pop(bar.key, None)
        self._bars[bar.key] = (self._fed, bar.done)
        if len(self._bars) > MOST_BARS:
            del self._bars[next(iter(self._bars))]

    def _append(self, line: LogLine) -> None:
        self._lines.append(line)
        self._fed += 1

    def _with_half(self) -> tuple[LogLine, ...]:
        kept, hidden = list(self._lines), self._fed - len(self._lines)
        for text, bar in parts_of(self._half):
            if bar is None:
                kept.append(LogLine(text, self._levels.peek(text)) if text else None)
                continue
            line = LogLine(text, "progress")
            number, done = self._bars.get(bar.key, (0, True))
            place = number - 1 - hidden
            if number and place >= 0 and number > self._last_text:
                kept[place] = line
                continue
            if number and place >= 0 and (bar.done or not done):
                kept[place] = None
            kept.append(line)
        return tuple(line for line in kept if line is not None)


class JobLog:
    """The log that the processes of a job write, for snapshots of files that have none."""

    def __init__(self) -> None:
        self._lines = LogLines()
        self._tail: TextTail | None = None

    @property
    def path(self) -> Path | None:
        return self._tail.path if self._tail is not None else None

    def follow(self, path: Path | None) -> None:
        """Read this file from now on; None changes nothing: what a process that has ended wrote is still there."""
        if path is not None and path != self.path:
            self._tail = TextTail(path)
            self._lines.clear()

    def laid_over(self, snapshot: Snapshot) -> Snapshot:
        if self._tail is None or snapshot.log:
            return snapshot
        self._lines.feed(self._tail.read_new())
        return dataclasses.replace(
            snapshot, log=self._lines.lines(), log_version=self._lines.version, log_path=str(self._tail.path)
        )
