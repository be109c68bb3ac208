"""EntryList: a list of any length with a cursor; only the lines on the screen are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut, pad


@dataclass(frozen=True, slots=True)
class EntryLine:
    """One line: a name, and a note aligned right. Both may hold anything."""

    name: str
    note: str = ""
    quiet: bool = False
    """What can be chosen and is seldom meant."""


class EntryList(ScrollView, can_focus=False):
    """Draws the lines that `line_of` gives for its items; asks for those that are seen and for no other."""

    COMPONENT_CLASSES = {"entry--line", "entry--quiet", "entry--here"}
    DEFAULT_CSS = """
    EntryList { height: 1fr; background: $surface; overflow-x: hidden; }
    EntryList > .entry--line { color: $foreground; background: $surface; }
    EntryList > .entry--quiet { color: $muted; background: $surface; }
    EntryList > .entry--here { color: $foreground; background: $panel; text-style: bold; }
    """

    class Pressed(Message):
        """A line was clicked."""

    def __init__(self, here: str) -> None:
        """`here` is the mark before the line of the cursor."""
        super().__init__()
        self._here = here
        self._count = 0
        self._line_of: Callable[[int], EntryLine] = lambda index: EntryLine("")
        self.cursor = 0

    def show(self, count: int, line_of: Callable[[int], EntryLine], cursor: int) -> None:
        """`count` lines; `line_of` gives each by its place."""
        self._count, self._line_of = count, line_of
        self.virtual_size = Size(max(1, self.scrollable_content_region.width), count)
        self.move_to(cursor)
        self.refresh()

    def move(self, by: int) -> None:
        """Down or up; a single step goes round at the ends, a page stops there."""
        if not self._count:
            return
        place = self.cursor + by
        self.move_to(place % self._count if abs(by) == 1 else place)

    def move_to(self, place: int) -> None:
        self.cursor = max(0, min(place, self._count - 1))
        height = max(1, self.scrollable_content_region.height)
        top = self.scroll_offset.y
        if not top <= self.cursor < top + height:
            self.scroll_to(y=max(0, self.cursor - height // 2), animate=False, immediate=True)
        self.refresh()

    @property
    def page(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if index >= self._count:
            return Strip.blank(width, self.get_component_rich_style("entry--line"))
        line, at_cursor = self._line_of(index), index == self.cursor
        part = "entry--here" if at_cursor else "entry--quiet" if line.quiet else "entry--line"
        text = line_text(line, self._here if at_cursor else " ", width)
        return Strip([Segment(text, self.get_component_rich_style(part))], cells(text))

    def on_click(self, event: events.Click) -> None:
        place = self.scroll_offset.y + event.y
        if place < self._count:
            event.stop()
            self.move_to(place)
            self.post_message(self.Pressed())


def line_text(line: EntryLine, mark: str, width: int) -> str:
    """Exactly `width` cells: the mark, the name as far as there is room for it, and the note at the right."""
    note = plain_text(line.note)
    room = width - cells(mark) - 1 - (cells(note) + 2 if note else 0) - 1
    if note and room < 12:
        note, room = "", width - cells(mark) - 2
    # A name may be as long as the file system allows; no more of it is cleaned than can be seen.
    name = pad(cut(plain_text(line.name, max(1, 4 * width)), max(1, room)), max(0, room))
    return cut(pad(f"{mark} {name}" + (f"  {note} " if note else " "), width), width, "")
