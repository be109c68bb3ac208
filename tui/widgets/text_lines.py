"""TextLines: a text of several lines in a scrolling panel; a line that changes costs that line, not the screen."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from trainwiz.tui.widgets.repaint import LinedWidget


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
    """The same lines in the quiet colour."""
    return [line.stylize("$muted") for line in lines]


def hanging(content: Content, width: int, indent: int) -> list[Content]:
    """A paragraph in lines of `width` cells; those after the first are indented."""
    first, *more = content.wrap(max(10, width))
    if not more:
        return [first]
    rest = _left_stripped(content[len(first.rstrip().plain) :])
    return [first, *(Content(" " * indent) + piece for piece in rest.wrap(max(10, width - indent)))]


def _left_stripped(content: Content) -> Content:
    spaces = len(content.plain) - len(content.plain.lstrip())
    return content[spaces:] if spaces else content
