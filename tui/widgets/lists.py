"""Lists with a cursor and texts of several lines; only the lines that changed are painted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rich.segment import Segment
from textual import events
from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from trainwiz.core.text import plain_text
from trainwiz.tui.text import cells, cut, pad

# What is painted anew: only the lines of a widget that read otherwise than before.

LineKey = Sequence[object]


def line_key(line: Content) -> LineKey:
    """Equal where two lines look alike; Content itself compares its text only."""
    return (line.plain, *line.spans)


def refresh_lines(widget: Widget, before: Sequence[LineKey], after: Sequence[LineKey]) -> Sequence[LineKey]:
    """Paint the lines that differ, all of them where there are more or fewer; returns what is drawn then.

    Textual paints a whole widget for every `refresh()`, which costs most of what a monitor takes. What
    is not on the screen is drawn when it comes there.
    """
    if not widget.is_on_screen:
        if before:
            widget.refresh()
        return ()
    if len(before) != len(after):
        widget.refresh()
        return after
    changed = [y for y, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if changed:
        width = widget.content_size.width
        widget.refresh(*(Region(0, y, width, 1) for y in changed))
    return after


class LinedWidget(Widget):
    """A widget that says in `content_lines` what stands in each of its lines; a changed line costs one line."""

    # A line fits already: to look where it could be wrapped is a quarter of what drawing it takes.
    DEFAULT_CSS = """
    LinedWidget { text-wrap: nowrap; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        # Looking for links in what is drawn takes longer than drawing it.
        self.auto_links = False
        self._drawn: Sequence[LineKey] = ()
        self._lines: list[Content] | None = None
        self._lines_for = self.outer_size
        self._width = 0

    def content_lines(self) -> list[Content]:
        """The lines for the size that the widget has now."""
        return []

    def refresh_changed(self) -> None:
        """Paint what reads otherwise than before."""
        self._lines = None
        self._drawn = refresh_lines(self, self._drawn, [line_key(line) for line in self._now()])

    def content(self) -> Content:
        return Content("\n").join(self.content_lines())

    def render(self) -> RenderResult:
        return self.content()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        if not regions:
            self._lines = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render_line(self, y: int) -> Strip:
        if self.text_selection is not None:
            return super().render_line(y)
        lines, width = self._now(), self._width
        if y >= len(lines) or not width:
            return Strip.blank(width, self.visual_style.rich_style)
        return Visual.to_strips(self, lines[y], width, 1, self.visual_style)[0]

    def _now(self) -> list[Content]:
        width = self.content_size.width
        # The lines may be asked for before the layout that gives a width.
        if self._lines is None or self._lines_for != self.outer_size or self._width != width:
            self._lines_for, self._width = self.outer_size, width
            self._lines = self.content_lines()
        return self._lines


# EntryList: a list of any length with a cursor; only the lines on the screen are drawn.


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


# TextLines: a text of several lines in a scrolling panel; a line that changes costs that line, not the screen.


class TextLines(LinedWidget):
    """Shows lines that fit its width already."""

    DEFAULT_CSS = """
    TextLines { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text: Sequence[Content] = ()
        self._dimmed = False

    def show(self, lines: Sequence[Content]) -> None:
        is_as_high = len(lines) == len(self._text)
        self._text = lines
        if is_as_high:
            self.refresh_changed()
        else:
            self.refresh(layout=True)

    def dim(self, is_old: bool) -> None:
        """Draw what is about to be replaced in the quiet colour, which can still be read; less opaque it could not."""
        if is_old != self._dimmed:
            self._dimmed = is_old
            self.refresh_changed()

    def content_lines(self) -> list[Content]:
        return dimmed(self._text) if self._dimmed else list(self._text)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._text)


def dimmed(lines: Sequence[Content]) -> list[Content]:
    return [line.stylize("$muted") for line in lines]


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces where there are any."""
    return [line.plain.rstrip() for line in Content(text).wrap(max(width, 8))] if text else []


def indented(text: str, width: int, style: str = "$muted", indent: int = 4) -> list[Content]:
    """A paragraph in lines of `width` cells, all of them indented."""
    return [Content.styled(" " * indent + line, style) for line in wrap(text, width - indent - 1)]


def hanging(content: Content, width: int, indent: int) -> list[Content]:
    """A paragraph in lines of `width` cells; those after the first are indented."""
    first, *more = content.wrap(max(10, width))
    if not more:
        return [first]
    rest = content[len(first.rstrip().plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    return [first, *(Content(" " * indent) + piece for piece in rest.wrap(max(10, width - indent)))]
