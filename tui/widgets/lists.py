"""Widgets made of lines; only the lines that changed are painted. Paragraphs as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from trainwiz.tui.theme import marks

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
        self._lines_for = self.outer_size, self.content_size

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
        lines, width = self._now(), self.content_size.width
        if y >= len(lines) or not width:
            return Strip.blank(width, self.visual_style.rich_style)
        return Visual.to_strips(self, lines[y], width, 1, self.visual_style)[0]

    def _now(self) -> list[Content]:
        # The lines may be asked for before the layout that gives a width.
        sizes = self.outer_size, self.content_size
        if self._lines is None or self._lines_for != sizes:
            self._lines_for, self._lines = sizes, self.content_lines()
        return self._lines


@dataclass
class Pressed(Message):
    """A click on a button or a row, or the key that does the same."""

    widget: Widget


class LinesWidget(Widget):
    """As high as the lines that `lines_in` gives for its width."""

    def lines_in(self, width: int) -> list[Content]:
        return []

    def redraw(self) -> bool:
        """Paint the lines anew; the screen is laid out, which costs most, only for more or fewer. True for more."""
        width, before = self.content_size
        now = len(self.lines_in(width)) if width else before
        self.refresh(layout=now != before)
        return now > before

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines_in(width))

    def render(self) -> RenderResult:
        return Content("\n").join(self.lines_in(self.content_size.width))


class FocusLines(LinesWidget):
    """Has other lines while it has the focus."""

    def on_focus(self) -> None:
        self.refresh(layout=True)

    def on_blur(self) -> None:
        self.refresh(layout=True)


class TextLines(LinedWidget):
    """Shows lines that fit its width already."""

    DEFAULT_CSS = """
    TextLines { height: auto; }
    """

    _text: Sequence[Content] = ()
    _dimmed = False

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


def indented(text: str, width: int, style: str = "$muted") -> list[Content]:
    """A paragraph in lines of `width` cells, all of them indented."""
    return [Content.styled(f"    {line}", style) for line in wrap(text, width - 5)]


def hanging(content: Content, width: int, indent: int) -> list[Content]:
    """A paragraph in lines of `width` cells; those after the first are indented."""
    first, *more = content.wrap(max(10, width))
    if not more:
        return [first]
    rest = content[len(first.rstrip().plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    return [first, *(Content(" " * indent) + piece for piece in rest.wrap(max(10, width - indent)))]


def level_sign(level: str) -> tuple[str, str]:
    """The mark before a finding or a piece of advice, and its colour."""
    known = {"error": (marks.bad, "$error"), "warning": (marks.tight, "$warning"), "ok": (marks.ok, "$success")}
    return known.get(level, (marks.dot, "$muted"))
