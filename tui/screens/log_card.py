"""LogCard: the last lines of a run's log over the whole screen; it goes on growing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.widgets.key_bar import KeyBar
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.monitor_panel import frame_title

if TYPE_CHECKING:
    from trainwiz.core.telemetry.log import LogLine

REFRESH_S = 0.5


class LogCard(ModalScreen[None]):
    """`lines` gives the lines as of now."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog"), ("l", "close", "close")]
    AUTO_FOCUS = "LogView"

    DEFAULT_CSS = """
    LogCard { background: $background; }
    LogCard LogView { height: 1fr; border: round $line; border-title-color: $muted; padding: 0 1; }
    LogCard LogView:focus { border: round $line; }
    """

    def __init__(self, title: str, lines: Callable[[], tuple[LogLine, ...]]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        view = LogView(wrap=True, empty_text="No output yet.")
        view.border_title = frame_title(self._title)
        yield view
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("dialog")]

    def on_mount(self) -> None:
        self._show()
        self.set_interval(REFRESH_S, self._show)

    def _show(self) -> None:
        self.query_one(LogView).show(self._lines())

    def action_close(self) -> None:
        self.dismiss(None)
