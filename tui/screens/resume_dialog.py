"""ResumeDialog: asks before a run that has ended is started again, and says where it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.widgets.action_button import ActionButton

ABOUT = mark("It runs detached, as the run did: closing this monitor does not stop it.")


class ResumeDialog(ModalScreen[bool]):
    """True starts the run again. `find_start` says where from; it reads files and runs in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    ResumeDialog { align: center middle; background: $background 60%; }
    ResumeDialog > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 96%; background: $surface; border: round $accent; padding: 1 2;
    }
    ResumeDialog Static { height: auto; margin-bottom: 1; }
    ResumeDialog Horizontal { height: auto; }
    """

    def __init__(self, find_start: Callable[[], str]) -> None:
        super().__init__()
        self._find_start = find_start

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(tr("Go on with this run?"), "bold"), markup=False)
            yield Static(tr("Looking for its newest complete checkpoint."), id="start", markup=False)
            yield Static(tr(ABOUT), markup=False)
            with Horizontal():
                yield ActionButton(tr("resume"), "resume")
                yield ActionButton(tr("leave it"), "cancel")

    def on_mount(self) -> None:
        self._look_up()

    @work(thread=True, exit_on_error=False)
    def _look_up(self) -> None:
        self.app.call_from_thread(self._show, self._find_start())

    def _show(self, start: str) -> None:
        if self.is_attached:
            self.query_one("#start", Static).update(plain_text(start))

    @on(ActionButton.Pressed)
    def _pressed(self, message: ActionButton.Pressed) -> None:
        self.dismiss(message.button.action == "resume")

    def action_press(self) -> None:
        if isinstance(self.focused, ActionButton):
            self.dismiss(self.focused.action == "resume")

    def action_close(self) -> None:
        self.dismiss(False)
