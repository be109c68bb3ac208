"""LogCard: the newest lines of a log over the screen: follow, search, filter by level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.worker import get_current_worker
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import TextTail
from trainwiz.core.telemetry.log import LogLine, LogLines
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.frame import KeyBar, entry_field
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.monitor_panel import frame_title

if TYPE_CHECKING:
    from trainwiz.core.telemetry.log import LogLevel

REFRESH_S = 0.5
MOST_LINES, MOST_BYTES = 10_000, 8 * 1024**2
"""So much of the end of a log is here; who wants what lies before has a pager."""
ROWS_ABOVE = 5
LEVELS: tuple[tuple[str, tuple[LogLevel, ...] | None], ...] = (
    (mark("all lines"), None),
    (mark("warnings and errors"), ("warning", "error")),
    (mark("errors"), ("error",)),
)


class LogCard(ModalScreen[None]):
    """The log is read while its end is followed; a reader of older lines is left alone."""

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
        self._log = LogLines(TextTail(path, MOST_BYTES), MOST_LINES)
        self._lines: Sequence[LogLine] = ()
        self._level = 0
        self._text = ""
        self._reading = False

    def compose(self) -> ComposeResult:
        view = LogView(wrap=True, empty_text=tr("No output yet."))
        view.border_title = frame_title(self._title)
        yield view
        yield entry_field(tr("text to find"), 200)
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("log")]

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(REFRESH_S, self._refresh)

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    def _refresh(self) -> None:
        if self.view.following and not self._reading:
            self._reading = True
            self._read()
        self._say_where()

    @work(thread=True, exit_on_error=False)
    def _read(self) -> None:
        worker, lines = get_current_worker(), self._log.read()
        self._reading = False
        if not worker.is_cancelled:
            self.app.call_from_thread(self._take, lines)

    def _take(self, lines: Sequence[LogLine]) -> None:
        if self.is_attached and self.view.following and lines is not self._lines:
            self._lines = lines
            self._show()

    def _show(self) -> None:
        """The lines of the level that is chosen."""
        words, levels = LEVELS[self._level]
        shown = [line for line in self._lines if levels is None or line.level in levels]
        nothing = tr("No output yet.") if levels is None else tr("No {lines} in this log.", lines=tr(words))
        self.view.show(shown)
        self.view.say_when_empty(plain_text(self._log.problem or nothing))
        self._say_where()

    def _say_where(self) -> None:
        words = [tr(LEVELS[self._level][0])]
        if len(self._lines) >= MOST_LINES or (self._log.tail is not None and self._log.tail.skipped_bytes):
            words.append(tr("the newest {n} lines", n=f"{len(self._lines):,}"))
        if self.view.following:
            words.append(tr("following"))
        text = f" {marks.dot} ".join(words)
        if str(self.view.border_subtitle) != text:
            self.view.border_subtitle = frame_title(text)

    def action_follow(self) -> None:
        self.view.follow()
        self._refresh()

    def action_to_start(self) -> None:
        self.view.go_to_line(0)

    def action_next_level(self) -> None:
        self._level = (self._level + 1) % len(LEVELS)
        self.view.follow()
        self._show()

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
        self._text = event.value
        self.view.mark(self._text)
        # The end is followed: what is searched for lies mostly above.
        self.action_next_match(-1 if self.view.following else 1)

    def action_next_match(self, direction: int) -> None:
        """Go to the next line with the text (1) or the one before (-1)."""
        if not self._text:
            self.action_search()
        elif not self.view.go_to_match(direction, above=ROWS_ABOVE):
            text = plain_text(self._text, 60)
            said = (
                tr("“{text}” was not found further down.", text=text)
                if direction > 0
                else tr("“{text}” was not found further up.", text=text)
            )
            self.notify(said, markup=False)

    # Closing

    def action_close(self) -> None:
        if self.has_class("-searching"):
            self._end_typing()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)
