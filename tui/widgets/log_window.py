"""LogWindow: the part of a log that is laid out, moved along a log of any size. Pure but for the log's own reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trainwiz.core.telemetry.log import LogLevel, LogLine, bar_of
from trainwiz.core.telemetry.log_file import LogPart, PlacedLine

PAGE_LINES = 400
MOST_LINES = 2_000
"""More are not laid out at once; what lies further away is read again when it is wanted."""
SKIP_BYTES = 1024 * 1024
"""What grew by more than this since the last look is entered at its end."""

FAR_BEHIND = 1 << 62
"""Behind the end of any log."""


class SearchableLog(Protocol):
    """A LogFile, or lines in memory."""

    def search(
        self,
        text: str = "",
        level: LogLevel | None = None,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 200,
    ) -> LogPart: ...


class LinesLog:
    """Lines in memory, addressed by their number as a file is by its bytes."""

    def __init__(self, lines: Callable[[], Sequence[LogLine]]) -> None:
        self._lines = lines

    def search(
        self,
        text: str = "",
        level: LogLevel | None = None,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 200,
    ) -> LogPart:
        """As LogFile.search."""
        lines = self._lines()
        size = len(lines)
        low, high = (min(max(0, after), size), size) if after is not None else (0, size if before is None else before)
        found = [
            PlacedLine(number, number + 1, line)
            for number, line in enumerate(lines[low:high], start=low)
            if text.casefold() in line.text.casefold()
            and (level is None or line.level == level or (level, line.level) == ("warning", "error"))
        ]
        if len(found) > limit:
            found = found[:limit] if after is not None else found[-limit:]
            low, high = (low, found[-1].end) if after is not None else (found[0].start, high)
        return LogPart(tuple(found), low, high, size)


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Consecutive lines of one level filter, and the bytes that they were taken from."""

    lines: tuple[PlacedLine, ...] = ()
    start: int = 0
    end: int = 0
    size: int = 0
    at_end: bool = False
    """Nothing whole lies behind it; what the log gains belongs to it."""
    problem: str | None = None

    @property
    def at_start(self) -> bool:
        return self.start == 0

    def place_of(self, start: int) -> int:
        """Index of the first line that begins at the byte `start` or after it."""
        return next((index for index, line in enumerate(self.lines) if line.start >= start), len(self.lines))


def window_at_end(log: SearchableLog, level: LogLevel | None) -> LogWindow:
    part = log.search(level=level, limit=PAGE_LINES)
    return LogWindow(part.lines, part.start, part.end, part.size, True, part.problem)


def window_at(log: SearchableLog, level: LogLevel | None, at: int) -> LogWindow:
    """A page before and a page after the byte `at`, at which a line begins."""
    return earlier(log, level, later(log, level, LogWindow((), at, at)))


def earlier(log: SearchableLog, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """At most a page more at the front; where few lines pass the filter, perhaps none yet."""
    part = log.search(level=level, before=window.start, limit=PAGE_LINES)
    if part.problem is not None or part.start >= window.start:
        return replace(window, problem=part.problem)
    window = replace(window, lines=part.lines + window.lines, start=part.start)
    if len(window.lines) <= MOST_LINES:
        return window
    cut = MOST_LINES
    while cut > 1 and window.lines[cut].start == window.lines[cut - 1].start:
        cut -= 1
    return replace(window, lines=window.lines[:cut], end=window.lines[cut].start, at_end=False)


def later(log: SearchableLog, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """At most a page more at the back, and what the log gained."""
    part = log.search(level=level, after=window.end, limit=PAGE_LINES)
    if part.problem is not None:
        return replace(window, problem=part.problem)
    # The unfinished last line was taken before and is taken again, as it reads now.
    kept = [line for line in window.lines if line.start < window.end]
    lines = _with_bars_folded(kept, part.lines)
    window = LogWindow(lines, window.start, part.end, part.size, part.at_end or part.end <= window.end)
    if len(window.lines) <= MOST_LINES:
        return window
    cut = len(window.lines) - MOST_LINES
    while cut < len(window.lines) - 1 and window.lines[cut].start == window.lines[cut - 1].start:
        cut += 1
    return replace(window, lines=window.lines[cut:], start=window.lines[cut].start)


def refreshed(log: SearchableLog, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """The window of a reader at the end, with what the log gained; a log that was begun anew is read anew."""
    size = log.search(after=FAR_BEHIND, limit=1).size
    if size < window.end or size - window.end > SKIP_BYTES:
        return window_at_end(log, level)
    return window if size == window.size else later(log, level, window)


def found_line(
    log: SearchableLog, text: str, level: LogLevel | None, at: int, direction: int, go: Callable[[int, int], bool]
) -> PlacedLine | None:
    """The next line after (1) or before (-1) the byte `at` that holds `text`; None where there is none.

    `go` is asked between the parts with the byte that was reached and the size; False ends the search.
    """
    while True:
        if direction > 0:
            part = log.search(text, level, after=at, limit=1)
            done, at = part.at_end or part.end <= at, part.end
        else:
            part = log.search(text, level, before=at, limit=1)
            done, at = part.at_start, part.start
        if part.lines:
            return part.lines[0 if direction > 0 else -1]
        if done or part.problem is not None or not go(at, part.size):
            return None


def _with_bars_folded(kept: list[PlacedLine], new: tuple[PlacedLine, ...]) -> tuple[PlacedLine, ...]:
    """A progress bar at the end of `kept` whose newer version begins `new` is shown once."""
    bars = {bar.key for line in new if line.line.level == "progress" and (bar := bar_of(line.line.text)) is not None}
    end = len(kept)
    while end > 0 and kept[end - 1].line.level == "progress":
        end -= 1
    still = [line for line in kept[end:] if (bar := bar_of(line.line.text)) is None or bar.done or bar.key not in bars]
    return (*kept[:end], *still, *new)
