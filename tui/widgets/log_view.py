"""LogView: lines of plain text that follow their end until the reader scrolls up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from trainwiz.core.telemetry.log import LogLine


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

    def show(self, lines: Sequence[LogLine]) -> None:
        """Show these lines from now on; unchanged lines cost nothing."""
        if self._shown and (lines is self._lines or lines == self._lines):
            return
        self._lines, self._found_line = lines, None
        self._lay_out()

    def say_when_empty(self, text: str) -> None:
        if text != self.empty_text:
            self.empty_text = text
            if not self._lines:
                self._lay_out()

    def mark(self, text: str) -> None:
        """Make this text stand out wherever it is seen."""
        self._found, self._found_line = text.lower(), None
        self.refresh()

    @property
    def shown_lines(self) -> list[str]:
        return self._shown

    def _line_of(self, row: int) -> int:
        return self._owners[min(max(0, row), len(self._owners) - 1)] if self._owners else 0

    def go_to_line(self, line: int, *, above: int = 0) -> None:
        """Put a line at the top, with `above` rows before it."""
        self.following = False
        row = max(0, bisect_left(self._owners, line) - above)
        # Forced, because Textual refuses to scroll what shows no scrollbar (yet).
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def go_to_match(self, direction: int, *, above: int) -> bool:
        """Go to the line after (1) or before (-1) the last one found that has the marked text; False where none has."""
        here = self._found_line
        if here is None:
            here = len(self._lines) if self.following else self._line_of(int(self.scroll_offset.y)) - direction
        places = range(here + 1, len(self._lines)) if direction > 0 else range(here - 1, -1, -1)
        found = next((place for place in places if self._found in self._lines[place].text.lower()), None)
        if found is None:
            return False
        self._found_line = found
        self.go_to_line(found, above=above)
        self.refresh()
        return True

    def follow(self) -> None:
        self.following, self._found_line = True, None
        self._go_to_end()

    def on_resize(self, event: Resize) -> None:
        self._lay_out(self._line_of(int(self.scroll_offset.y)))

    def _lay_out(self, top: int | None = None) -> None:
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
            self.go_to_line(top)
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
            self.following = True
        elif new_value < old_value:
            self.following = False

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
