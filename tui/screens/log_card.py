"""LogCard: a whole log over the screen, of any size: follow, search, filter by level, wrap, copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.worker import get_current_worker
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.log import LogFile, PlacedLine
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.text import size as size_words
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets import log_view as windows
from trainwiz.tui.widgets.frame import KeyBar, entry_field
from trainwiz.tui.widgets.log_view import LogView, LogWindow
from trainwiz.tui.widgets.monitor_panel import frame_title

if TYPE_CHECKING:
    from trainwiz.core.telemetry.log import LogLevel

Read = Callable[..., LogWindow]

REFRESH_S = 0.5
NEAR_ROWS = 60
"""So close to the end of what is laid out, more is read."""
ROWS_ABOVE = 5
LEVELS: tuple[tuple[LogLevel | None, str], ...] = (
    (None, mark("all lines")),
    ("warning", mark("warnings and errors")),
    ("error", mark("errors")),
)


class LogCard(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("log")]
    AUTO_FOCUS = "LogView"

    DEFAULT_CSS = """
    LogCard { background: $background; }
    LogCard LogView {
        height: 1fr; border: round $line; border-title-color: $muted; border-subtitle-color: $muted; padding: 0 1;
    }
    LogCard LogView:focus { border: round $line; }
    LogCard Input { display: none; border: none; height: 1; padding: 0 1; background: $panel; }
    LogCard.-searching Input { display: block; }
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._title = str(path)
        self._log = LogFile(path)
        self._window = LogWindow()
        self._level = 0
        self._text = ""
        self._match: PlacedLine | None = None
        self._asked = 0
        """Windows that were asked for; only the newest is taken."""
        self._reading = False
        self._searched: float | None = None
        """While a search goes on: the share of the log at which it is."""

    def compose(self) -> ComposeResult:
        view = WholeLog(wrap=True, empty_text=tr("No output yet."))
        view.border_title = frame_title(self._title)
        yield view
        yield entry_field(tr("text to find"), 200)
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("log")]

    def on_mount(self) -> None:
        self.action_follow()
        self.set_interval(REFRESH_S, self._refresh)

    @property
    def view(self) -> WholeLog:
        return self.query_one(WholeLog)

    @property
    def _level_name(self) -> LogLevel | None:
        return LEVELS[self._level][0]

    # Reading

    def _read(self, read: Read, *more: LogWindow | int, show: int | None = None, end: bool = False) -> None:
        """Take the window that `read` gives, and show the line at the byte `show`, or its end; else stay in place."""
        # Here and not in the thread: until that runs, the next look for news would take this one's place.
        self._asked += 1
        self._reading = True
        self._read_apart(self._asked, partial(read, self._log, self._level_name, *more), show, end)

    @work(thread=True, exclusive=True, group="read", exit_on_error=False)
    def _read_apart(self, number: int, read: Callable[[], LogWindow], show: int | None, end: bool) -> None:
        worker, window = get_current_worker(), read()
        if not worker.is_cancelled:
            self.app.call_from_thread(self._take, number, window, show, end)

    def _take(self, number: int, window: LogWindow, show: int | None, end: bool) -> None:
        if number != self._asked:
            return
        self._reading = False
        if not self.is_attached:
            return
        view = self.view
        line, above = view.top
        top = self._window.start_of(line)
        self._window = window
        view.may_follow = window.at_end
        view.following = end or (view.following and show is None)
        lines = [placed.line for placed in window.lines]
        view.show(lines, top=None if view.following else (window.place_of(top), above))
        view.say_when_empty(self._empty_text(window))
        if show is not None:
            self._go_to(show)
        self._say_where()
        self._read_more()

    def _go_to(self, start: int) -> None:
        self.view.go_to_line(self._window.place_of(start), above=ROWS_ABOVE)
        if self._match is not None:
            self.view.mark(self._text, self._window.place_of(self._match.start))

    def _empty_text(self, window: LogWindow) -> str:
        if window.problem is not None:
            return plain_text(window.problem)
        if self._level_name is None:
            return tr("No output yet.")
        wanted = tr(LEVELS[self._level][1])
        if window.at_start and window.at_end:
            return tr("No {lines} in this log.", lines=wanted)
        return tr("Searching for {lines}.", lines=wanted)

    def _refresh(self) -> None:
        if self.view.following and self._window.at_end and not self._reading:
            self._read(windows.refreshed, self._window)

    @on(LogView.Scrolled)
    def _scrolled(self) -> None:
        self._say_where()
        self._read_more()

    def _read_more(self) -> None:
        """Read on where the reader comes near to an end of what is laid out."""
        view, window = self.view, self._window
        if self._reading or window.problem is not None:
            return
        if view.scroll_offset.y < NEAR_ROWS and not window.at_start:
            self._read(windows.earlier, window)
        elif view.max_scroll_y - view.scroll_offset.y < NEAR_ROWS and not window.at_end:
            self._read(windows.later, window)

    def _say_where(self) -> None:
        view, window = self.view, self._window
        words = [tr(LEVELS[self._level][1]), size_words(window.size)]
        if self._searched is not None:
            words.append(tr("searching, at {share}", share=f"{self._searched * 100:.0f}%"))
        elif view.following and window.at_end:
            words.append(tr("following"))
        elif window.lines and window.size:
            words.append(tr("at {share}", share=f"{self._top_byte / window.size * 100:.0f}%"))
        text = f" {marks.dot} ".join(words)
        if str(view.border_subtitle) != text:
            view.border_subtitle = frame_title(text)

    # Moving and showing

    @property
    def _top_byte(self) -> int:
        return self._window.start_of(self.view.top[0])

    def action_follow(self) -> None:
        self._read(windows.window_at_end, end=True)

    def action_to_start(self) -> None:
        self._read(windows.later, LogWindow(), show=0)

    def action_next_level(self) -> None:
        top = self._top_byte
        self._level = (self._level + 1) % len(LEVELS)
        if self.view.following:
            self.action_follow()
        else:
            self._read(windows.window_at, top, show=top)

    def action_wrap(self) -> None:
        self.view.set_wrap(not self.view.wrap)

    def action_copy(self) -> None:
        lines = [self._window.lines[index].line.text for index in self.view.visible_lines]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(trn("Copied {n} line.", "Copied {n} lines.", len(lines)), markup=False)

    # Searching

    def action_search(self) -> None:
        self.add_class("-searching")
        entry = self.query_one(Input)
        entry.value = self._text
        entry.focus()

    def _end_typing(self) -> None:
        self.remove_class("-searching")
        self.view.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end_typing()
        self._text, self._match = event.value, None
        self.view.mark(self._text)
        if self._text:
            self._search_from(self._top_byte, 1, first=True)

    def action_next_match(self, direction: int) -> None:
        if not self._text:
            self.action_search()
            return
        match = self._match
        at = self._top_byte if match is None else match.end if direction > 0 else match.start
        self._search_from(at, direction)

    @work(thread=True, exclusive=True, group="search", exit_on_error=False)
    def _search_from(self, at: int, direction: int, first: bool = False) -> None:
        """Find the next line with the text; a first search that finds none below looks above."""
        worker, text, level = get_current_worker(), self._text, self._level_name

        def go(reached: int, size: int) -> bool:
            if not worker.is_cancelled:
                self.app.call_from_thread(self._show_search, reached / max(1, size))
            return not worker.is_cancelled

        found = windows.found_line(self._log, text, level, at, direction, go)
        if found is None and first:
            found = windows.found_line(self._log, text, level, at, -1, go)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._take_match, found, direction, first)

    def _show_search(self, share: float | None) -> None:
        self._searched = share
        if self.is_attached:
            self._say_where()

    def _take_match(self, found: PlacedLine | None, direction: int, first: bool) -> None:
        self._show_search(None)
        if not self.is_attached:
            return
        if found is None:
            text = plain_text(self._text, 60)
            if first:
                said = tr("“{text}” was not found in this log.", text=text)
            elif direction > 0:
                said = tr("“{text}” was not found further down.", text=text)
            else:
                said = tr("“{text}” was not found further up.", text=text)
            self.notify(said, markup=False)
            return
        self._match = found
        if self._window.start <= found.start < self._window.end:
            self._go_to(found.start)
            self._read_more()
        else:
            self._read(windows.window_at, found.start, show=found.start)

    # Closing

    def action_close(self) -> None:
        if self.has_class("-searching"):
            self._end_typing()
        elif self._searched is not None:
            self.workers.cancel_group(self, "search")
            self._show_search(None)
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)


class WholeLog(LogView):
    """The view of a LogCard: its home and end are those of the log."""

    tells_scrolling = True

    def action_scroll_home(self) -> None:
        if isinstance(self.screen, LogCard):
            self.screen.action_to_start()

    def action_scroll_end(self) -> None:
        if isinstance(self.screen, LogCard):
            self.screen.action_follow()
