"""What is painted anew: only the lines of a widget that read otherwise than before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

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


if TYPE_CHECKING:
    _Painted = Widget
else:
    # Textual takes styles and keys from the first base that is a widget.
    _Painted = object


class Kept(_Painted):
    """For a widget, before its other bases: it remembers how it is painted.

    For each line that changes anywhere, Textual asks all widgets on the screen for all of their lines. Here
    the answer is the one before, as long as nothing of this widget is to be painted anew.
    """

    _kept: list[Strip] | None = None
    _kept_for: tuple[Region, Size] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        # The outer size is at hand; the size of the content is looked up in the layout each time.
        if self._kept is None or self._kept_for != (crop, self.outer_size):
            self._kept, self._kept_for = super().render_lines(crop), (crop, self.outer_size)
        return self._kept

    def _set_dirty(self, *regions: Region) -> None:
        # What Textual calls whenever something is to be painted anew, also by a new style, size or place to scroll to.
        self._kept = None
        super()._set_dirty(*regions)


class LinedWidget(Kept, Widget):
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
        """All lines as one text."""
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
