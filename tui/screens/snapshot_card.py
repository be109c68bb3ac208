"""SnapshotCard: a window over the monitor that is drawn anew from each look."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.key_bar import KeyBar
from trainwiz.tui.widgets.monitor_panel import frame_title

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

REFRESH_S = 1.0


class SnapshotCard(ModalScreen[None]):
    """`look` gives the newest look; subclasses say in `lines` what they show of it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    SnapshotCard { background: $background; }
    SnapshotCard VerticalScroll { height: 1fr; border: round $line; border-title-color: $muted; padding: 0 1; }
    SnapshotCard Static { height: auto; }
    """

    def __init__(self, look: Callable[[], Snapshot | None], marks: Marks) -> None:
        super().__init__()
        self._look = look
        self.marks = marks
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", markup=False)
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("dialog")]

    def on_mount(self) -> None:
        self.call_after_refresh(self.draw)
        self.set_interval(REFRESH_S, self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def title_of(self, snapshot: Snapshot) -> str:
        raise NotImplementedError

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        """All lines; what has no room is scrolled to."""
        raise NotImplementedError

    def draw(self) -> None:
        snapshot = self._look()
        scroll = self.query_one(VerticalScroll)
        width = scroll.scrollable_content_region.width
        if snapshot is None or width <= 0:
            return
        content = Content("\n").join([line.truncate(width, ellipsis=True) for line in self.lines(snapshot, width)])
        drawn = (self.title_of(snapshot), content.plain, tuple(content.spans))
        if drawn != self._drawn:
            self._drawn = drawn
            scroll.border_title = frame_title(self.title_of(snapshot))
            self.query_one(Static).update(content)

    def action_close(self) -> None:
        self.dismiss(None)
