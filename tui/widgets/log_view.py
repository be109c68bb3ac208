"""LogView: lines of plain text that follow their end until the reader scrolls up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from trainwiz.core.telemetry.log import LogLine


class LogView(ScrollView, can_focus=True):
    """Draws only the lines that can be seen, whatever their number. Text is never markup."""

    DEFAULT_CSS = """
    LogView { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; color: $foreground; background: $background; }
    """

    def __init__(self, *, wrap: bool = False, empty_text: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._wrap = wrap
        self._empty_text = empty_text
        self._lines: tuple[LogLine, ...] = ()
        self._shown: list[str] = []
        self._following = True

    def show(self, lines: tuple[LogLine, ...]) -> None:
        """Show these lines from now on; unchanged lines cost nothing."""
        if lines == self._lines and self._shown:
            return
        self._lines = lines
        self._lay_out()

    @property
    def shown_lines(self) -> list[str]:
        """The lines as laid out, one for each row."""
        return self._shown

    def on_resize(self, event: Resize) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width < 2:
            return
        lines = [line.text for line in self._lines] or ([self._empty_text] if self._empty_text else [])
        if self._wrap:
            self._shown = [part for line in lines for part in _wrapped(line, width)]
        else:
            self._shown = list(lines)
        self.virtual_size = Size(width, len(self._shown))
        if self._following:
            self._go_to_end()
            # The room may change with the layout that the new number of lines brings.
            self.call_after_refresh(self._go_to_end)
        self.refresh()

    def _go_to_end(self) -> None:
        # Forced, because Textual refuses to scroll what shows no scrollbar (yet).
        if self._following:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self._following = True
        elif new_value < old_value:
            self._following = False

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        row = self.scroll_offset.y + y
        if row >= len(self._shown):
            return Strip.blank(width, self.rich_style)
        return Strip([Segment(self._shown[row], self.rich_style)]).adjust_cell_length(width, self.rich_style)


def _wrapped(line: str, width: int) -> list[str]:
    """Pieces of at most `width` cells; a log is cut anywhere, so that it can be put together again."""
    return [line] if len(line) * 2 <= width or cell_len(line) <= width else chop_cells(line, width)
