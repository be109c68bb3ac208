"""LogView: lines of plain text that follow their end until the reader scrolls up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from trainwiz.core.telemetry.log import LogFile, LogLevel, LogLine, PlacedLine, bar_of


class LogView(ScrollView, can_focus=True):
    """Draws only the lines that can be seen, whatever their number. Text is never markup."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log--info", "log--error", "log--warning", "log--progress", "log--found"}

    DEFAULT_CSS = """
    LogView { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; color: $foreground; background: $background; }
    LogView > .log--error { color: $error; text-style: bold; }
    LogView > .log--warning { color: $warning; }
    LogView > .log--progress { color: $muted; }
    LogView > .log--found { text-style: bold reverse; }
    """

    tells_scrolling: ClassVar[bool] = False
    """Whether anybody waits for Scrolled."""

    class Scrolled(Message):
        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LogView.Scrolled)

    def __init__(self, *, wrap: bool = False, empty_text: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.wrap = wrap
        self.empty_text = empty_text
        self._lines: Sequence[LogLine] = ()
        self._shown: list[str] = []
        self._owners: Sequence[int] = ()
        """For each row the index of its line."""
        self._found = ""
        self._found_line: int | None = None
        self.following = True
        self.may_follow = True
        """False while what lies at the end of these lines is not the end of the log."""

    def show(self, lines: Sequence[LogLine], *, top: tuple[int, int] | None = None) -> None:
        """Show these lines from now on; unchanged lines cost nothing.

        `top` is the line to begin with, and how many of its rows lie above, where the end is not followed.
        """
        if top is None and self._shown and (lines is self._lines or lines == self._lines):
            return
        self._lines = lines
        self._lay_out(top)

    def say_when_empty(self, text: str) -> None:
        if text != self.empty_text:
            self.empty_text = text
            if not self._lines:
                self._lay_out()

    def set_wrap(self, wrap: bool) -> None:
        """Wrap long lines, or cut them; the same line stays at the top."""
        top = self.top[0]
        self.wrap = wrap
        self._lay_out((top, 0))

    def mark(self, text: str, line: int | None = None) -> None:
        """Make this text stand out wherever it is seen, most of all in one line."""
        self._found, self._found_line = text.lower(), line
        self.refresh()

    @property
    def shown_lines(self) -> list[str]:
        return self._shown

    @property
    def top(self) -> tuple[int, int]:
        """The line that the first row belongs to, and how many of its rows lie above."""
        row = int(self.scroll_offset.y)
        line = self._line_of(row)
        return line, row - bisect_left(self._owners, line) if self._owners else 0

    @property
    def visible_lines(self) -> range:
        if not self._lines:
            return range(0)
        bottom = int(self.scroll_offset.y) + max(1, self.scrollable_content_region.height) - 1
        return range(self.top[0], self._line_of(bottom) + 1)

    def _line_of(self, row: int) -> int:
        return self._owners[min(max(0, row), len(self._owners) - 1)] if self._owners else 0

    def go_to_line(self, line: int, *, above: int = 0) -> None:
        """Put a line at the top, with `above` rows before it (where negative, without its first ones)."""
        self.following = False
        row = max(0, bisect_left(self._owners, line) - above)
        # Forced, because Textual refuses to scroll what shows no scrollbar (yet).
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def on_resize(self, event: Resize) -> None:
        self._lay_out((self.top[0], 0))

    def _lay_out(self, top: tuple[int, int] | None = None) -> None:
        width = self.scrollable_content_region.width
        if width < 2:
            return
        if not self._lines:
            self._shown, self._owners = ([self.empty_text] if self.empty_text else []), range(1)
        elif self.wrap:
            # A log is cut anywhere, so that it can be put together again.
            cut = [chop_cells(line.text, width) if cell_len(line.text) > width else [line.text] for line in self._lines]
            rows = [(part, index) for index, parts in enumerate(cut) for part in parts]
            self._shown, self._owners = [part for part, _ in rows], [index for _, index in rows]
        else:
            self._shown, self._owners = [line.text for line in self._lines], range(len(self._lines))
        self.virtual_size = Size(width, len(self._shown))
        if self.following:
            self._go_to_end()
            # The room may change with the layout that the new number of lines brings.
            self.call_after_refresh(self._go_to_end)
        elif top is not None:
            self.go_to_line(top[0], above=-top[1])
        self.refresh(self.size.region)

    def _go_to_end(self) -> None:
        if self.following:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        if self.styles.scrollbar_size_vertical:
            super().watch_scroll_y(old_value, new_value)
        elif round(old_value) != round(new_value):
            # A scrollbar that is not drawn would still be painted.
            self.refresh(self.size.region)
        if new_value >= self.max_scroll_y:
            self.following = self.following or self.may_follow
        elif new_value < old_value:
            self.following = False
        if self.tells_scrolling:
            self.post_message(self.Scrolled())

    def render_line(self, y: int) -> Strip:
        width, plain = self.size.width, self._style_of("info")
        row = self.scroll_offset.y + y
        if row >= len(self._shown):
            return Strip.blank(width, plain)
        text, owner = self._shown[row], self._line_of(row)
        style = self._style_of(self._lines[owner].level) if self._lines else plain
        return Strip(self._segments(text, style, owner)).adjust_cell_length(width, plain)

    def _style_of(self, level: str) -> Style:
        # Textual keeps these until the next refresh; `rich_style` it would work out again for every line.
        return self.get_component_rich_style(f"log--{level}")

    def _segments(self, text: str, style: Style, line: int) -> list[Segment]:
        """The row, with what was searched for standing out."""
        lower, wanted = text.lower(), self._found
        underline = Style(underline=True) if wanted and line == self._found_line else Style()
        # A letter whose lower case is longer would shift the rest.
        if not wanted or wanted not in lower or len(lower) != len(text):
            return [Segment(text, style + underline)]
        found = style + self.get_component_rich_style("log--found", partial=True) + underline
        segments, at = [], 0
        while (start := lower.find(wanted, at)) >= 0:
            segments += [Segment(text[at:start], style), Segment(text[start : start + len(wanted)], found)]
            at = start + len(wanted)
        return [*segments, Segment(text[at:], style)]


PAGE_LINES = 400
MOST_LINES = 2_000
"""More are not laid out at once; what lies further away is read again when it is wanted."""
SKIP_BYTES = 1024 * 1024
"""What grew by more than this since the last look is entered at its end."""

FAR_BEHIND = 1 << 62
"""Behind the end of any log."""


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
        return bisect_left(self.lines, start, key=lambda line: line.start)

    def start_of(self, line: int) -> int:
        """The byte at which a line begins; of the last one where there are fewer."""
        return self.lines[min(line, len(self.lines) - 1)].start if self.lines else 0


def window_at_end(log: LogFile, level: LogLevel | None) -> LogWindow:
    part = log.search(level=level, limit=PAGE_LINES)
    return LogWindow(part.lines, part.start, part.end, part.size, True, part.problem)


def window_at(log: LogFile, level: LogLevel | None, at: int) -> LogWindow:
    """A page before and a page after the byte `at`, at which a line begins."""
    return earlier(log, level, later(log, level, LogWindow((), at, at)))


def earlier(log: LogFile, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """At most a page more at the front; where few lines pass the filter, perhaps none yet."""
    part = log.search(level=level, before=window.start, limit=PAGE_LINES)
    if part.problem is not None or part.start >= window.start:
        return replace(window, problem=part.problem)
    window = replace(window, lines=part.lines + window.lines, start=part.start)
    if len(window.lines) <= MOST_LINES:
        return window
    # What begins at one byte stays together.
    end = window.lines[MOST_LINES].start
    return replace(window, lines=window.lines[: window.place_of(end)], end=end, at_end=False)


def later(log: LogFile, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """At most a page more at the back, and what the log gained."""
    part = log.search(level=level, after=window.end, limit=PAGE_LINES)
    if part.problem is not None:
        return replace(window, problem=part.problem)
    # The unfinished last line was taken before and is taken again, as it reads now.
    lines = _with_bars_folded(window.lines[: window.place_of(window.end)], part.lines)
    window = LogWindow(lines, window.start, part.end, part.size, part.at_end or part.end <= window.end)
    if len(window.lines) <= MOST_LINES:
        return window
    start = window.lines[-MOST_LINES].start
    return replace(window, lines=window.lines[window.place_of(start) :], start=start)


def refreshed(log: LogFile, level: LogLevel | None, window: LogWindow) -> LogWindow:
    """The window of a reader at the end, with what the log gained; a log that was begun anew is read anew."""
    size = log.search(after=FAR_BEHIND, limit=1).size
    if size < window.end or size - window.end > SKIP_BYTES:
        return window_at_end(log, level)
    return window if size == window.size else later(log, level, window)


def found_line(
    log: LogFile, text: str, level: LogLevel | None, at: int, direction: int, go: Callable[[int, int], bool]
) -> PlacedLine | None:
    """The next line after (1) or before (-1) the byte `at` that holds `text`; None where there is none.

    `go` is asked between the parts with the byte that was reached and the size; False ends the search.
    """
    while True:
        part = log.search(text, level, **{"after" if direction > 0 else "before": at}, limit=1)
        done = part.at_start if direction < 0 else part.at_end or part.end <= at
        if part.lines:
            return part.lines[0 if direction > 0 else -1]
        at = part.end if direction > 0 else part.start
        if done or part.problem is not None or not go(at, part.size):
            return None


def _with_bars_folded(kept: tuple[PlacedLine, ...], new: tuple[PlacedLine, ...]) -> tuple[PlacedLine, ...]:
    """A progress bar at the end of `kept` whose newer version begins `new` is shown once."""
    bars = {bar.key for line in new if line.line.level == "progress" and (bar := bar_of(line.line.text)) is not None}
    end = len(kept)
    while end > 0 and kept[end - 1].line.level == "progress":
        end -= 1
    still = [line for line in kept[end:] if (bar := bar_of(line.line.text)) is None or bar.done or bar.key not in bars]
    return (*kept[:end], *still, *new)
