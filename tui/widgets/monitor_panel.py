"""MonitorPanel: a framed part of the monitor that draws itself from a snapshot in the room it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from trainwiz.core.plain import plain_text
from trainwiz.tui.keys import ScreenName
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.repaint import LinedWidget
from trainwiz.tui.wrapping import wrap

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


def frame_title(text: str) -> Content:
    """A title for a frame. Content, because a string would be read as markup, and `escape` lets some through."""
    return Content(plain_text(text))


class MonitorPanel(LinedWidget, can_focus=True):
    """A panel says in `lines` what it shows; `title` goes into its frame. `help_text` explains it to F1."""

    help_text = ""
    key_table: ClassVar[ScreenName | None] = None
    """The rows of the key table that work while this panel has the focus."""

    DEFAULT_CSS = """
    MonitorPanel {
        border: round $line; border-title-color: $muted; border-title-style: none;
        padding: 0 1; color: $foreground; height: auto;
    }
    MonitorPanel:focus { border: round $accent; border-title-color: $accent; }
    """

    def __init__(self, title: str, *, marks: Marks = UNICODE_MARKS, id: str | None = None) -> None:
        super().__init__(id=id)
        self.marks = marks
        self.snapshot: Snapshot | None = None
        self._title = title
        self.border_title = frame_title(title)
        self._drawn_title = title

    def show(self, snapshot: Snapshot) -> None:
        """Show this look; what reads as before is not drawn again."""
        self.snapshot = snapshot
        self._show_title(self.has_focus)
        self.refresh_changed()

    def _show_title(self, focused: bool) -> None:
        """A mark before the title says in every terminal which panel has the focus."""
        title = f"{self.marks.here} {self.title_text}" if focused else self.title_text
        if title != self._drawn_title:
            self._drawn_title = title
            self.border_title = frame_title(title)

    def on_focus(self) -> None:
        self._show_title(True)

    def on_blur(self) -> None:
        self._show_title(False)

    def title_of(self, snapshot: Snapshot) -> str:
        """What stands in the frame."""
        return self._title

    @property
    def title_text(self) -> str:
        """The title as it stands in the frame, without the mark of the focus."""
        return self._title if self.snapshot is None else self.title_of(self.snapshot)

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        """At most `height` lines of at most `width` cells, the most important ones first."""
        return []

    def wrapped(self, sentence: str, width: int) -> list[Content]:
        """A quiet sentence in as many lines as it needs."""
        return [Content.styled(line, "$muted") for line in wrap(plain_text(sentence, 400), max(10, width))]

    def content_lines(self) -> list[Content]:
        width, height = self.content_size
        if self.snapshot is None or width <= 0:
            return []
        return [line.truncate(width, ellipsis=True) for line in self.lines(self.snapshot, width, height)[:height]]
