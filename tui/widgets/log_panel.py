"""LogPanel: the newest lines of a log, wrapped; follows its end until the reader scrolls up; search, filter by level."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, chop_cells
from textual.binding import BindingType
from textual.content import Content
from textual.events import MouseScrollDown, MouseScrollUp
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.log import LogLine
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.frame import EntryDialog
from trainwiz.tui.widgets.monitor_panel import MonitorPanel, wrapped

if TYPE_CHECKING:
    from trainwiz.core.telemetry.log import LogLevel
    from trainwiz.core.telemetry.snapshot import Snapshot

STYLES = {"error": "bold $error", "warning": "$warning", "progress": "$muted"}
LEVELS: tuple[tuple[str, tuple[LogLevel, ...]], ...] = (
    ("", ()),
    (mark("warnings and errors"), ("warning", "error")),
    (mark("errors"), ("error",)),
)
ROWS_ABOVE = 2
"""What was found is shown with so many rows above it."""
WHEEL_ROWS = 3
SEARCH_HINT = mark("Enter searches; then n goes to the next match and N to the previous one.")


class LogPanel(MonitorPanel):
    """Draws only the rows that can be seen. While an older part is read, new lines wait."""

    help_text = mark(
        "The newest log lines of the job; a progress bar is one line. Press enter or l for the whole screen. "
        "/ searches, f shows only warnings or errors, the arrow keys scroll, end follows new lines again."
    )
    key_table: ClassVar[ScreenName | None] = "log"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("log")]

    def __init__(self) -> None:
        super().__init__(tr("log"))
        self._lines_read: Sequence[LogLine] = ()
        self._level = 0
        self._wanted = ""
        self._first: int | None = None
        """The first row that is shown; None follows the end."""
        self._found: int | None = None
        """The row that was found last."""
        self._rows: list[tuple[str, LogLevel]] = []
        self._rows_of: tuple[object, int, int] = ((), 0, 0)

    def show(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._lines_read = snapshot.log
        super().show(snapshot)

    def title_of(self, snapshot: Snapshot) -> str:
        levels = tr(LEVELS[self._level][0]) if self._level else ""
        following = "" if self._first is None else tr("press end to follow")
        return f" {marks.dot} ".join(filter(None, (self._title, levels, following)))

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if self._first is None:
            # What lies above the end need not be divided into rows.
            rows = _rows(self._of_level()[-height:], width)[-height:]
        else:
            rows = self.rows_at(width)
            # A wider panel has fewer rows.
            first = max(0, min(self._first, len(rows) - height))
            rows = rows[first : first + height]
        return [self._drawn_row(*row) for row in rows] or wrapped(self._empty_words(snapshot), width)

    def _of_level(self) -> list[LogLine]:
        levels = LEVELS[self._level][1]
        return [line for line in self._lines_read if not levels or line.level in levels]

    def rows_at(self, width: int) -> list[tuple[str, LogLevel]]:
        """All lines of the chosen levels in rows of `width` cells."""
        if self._rows_of != (self._lines_read, self._level, width):
            self._rows_of = self._lines_read, self._level, width
            self._rows = _rows(self._of_level(), width)
        return self._rows

    def _empty_words(self, snapshot: Snapshot) -> str:
        if self._lines_read:
            return tr("No {lines} in this log.", lines=tr(LEVELS[self._level][0]))
        if snapshot.log_path is not None:
            return tr("{path} has no lines yet.", path=snapshot.log_path)
        nothing = tr("No output yet.") if snapshot.source == "run" else tr("No log of this job was found.")
        return snapshot.unavailable.get("log") or nothing

    def _drawn_row(self, text: str, level: LogLevel) -> Content:
        row = Content.styled(text, STYLES.get(level, ""))
        if not self._wanted:
            return row
        return row.highlight_regex(re.compile(re.escape(self._wanted), re.IGNORECASE), style="bold reverse")

    # Moving

    @property
    def _last_page(self) -> int:
        return max(0, len(self.rows_at(self.content_size.width)) - self.content_size.height)

    @property
    def _top(self) -> int:
        return self._last_page if self._first is None else self._first

    def _go_to(self, first: int | None, found: int | None = None) -> None:
        """Show the rows from this one on; None follows the end."""
        self._first, self._found = first, found
        if self.snapshot is not None:
            self.show(self.snapshot)

    def action_move_lines(self, by: int) -> None:
        first = max(0, self._top + by)
        self._go_to(first if first < self._last_page else None)

    def action_move_pages(self, by: int) -> None:
        self.action_move_lines(by * max(1, self.content_size.height - 1))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.action_move_lines(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.action_move_lines(WHEEL_ROWS)

    def action_follow(self) -> None:
        self._go_to(None)

    def action_to_start(self) -> None:
        self._go_to(0)

    def action_next_level(self) -> None:
        self._level = (self._level + 1) % len(LEVELS)
        self._go_to(None)

    def action_search(self) -> None:
        def find(text: str | None) -> None:
            if text:
                self._wanted, self._found = text, None
                self.action_next_match(-1 if self._first is None else 1)

        self.app.push_screen(EntryDialog(tr("Search the log"), tr("text to find"), tr(SEARCH_HINT), str), find)

    def action_next_match(self, direction: int) -> None:
        """Go to the next row with the text (1) or to the one before (-1)."""
        if not self._wanted:
            self.action_search()
            return
        rows = self.rows_at(self.content_size.width)
        here = self._found
        if here is None:
            here = len(rows) if self._first is None else self._first - direction
        places = range(here + 1, len(rows)) if direction > 0 else range(here - 1, -1, -1)
        found = next((place for place in places if self._wanted.lower() in rows[place][0].lower()), None)
        if found is not None:
            self._go_to(max(0, min(found - ROWS_ABOVE, self._last_page)), found)
            return
        text = plain_text(self._wanted, 60)
        said = tr("“{text}” was not found further down.", text=text)
        self.notify(said if direction > 0 else tr("“{text}” was not found further up.", text=text), markup=False)


def _rows(lines: Sequence[LogLine], width: int) -> list[tuple[str, LogLevel]]:
    """A log is cut anywhere, so that it can be put together."""
    return [
        (part, line.level)
        for line in lines
        for part in ([line.text] if cell_len(line.text) <= width else chop_cells(line.text, max(2, width)))
    ]
