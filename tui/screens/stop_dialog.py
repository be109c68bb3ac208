"""StopDialog: asks before a run is stopped, and says what each way costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.core.language import tr
from trainwiz.tui.keys import bindings
from trainwiz.tui.stop_words import now_words, with_checkpoint_words
from trainwiz.tui.widgets.action_button import ActionButton

if TYPE_CHECKING:
    from trainwiz.core.run.stop_cost import StopCost
    from trainwiz.core.telemetry.snapshot import Snapshot


class StopDialog(ModalScreen[str | None]):
    """Answers "checkpoint", "now" or None (the run goes on).

    `find_cost` reads files: it runs in a thread, and the sentences get their figures when it is done.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    StopDialog { align: center middle; background: $background 60%; }
    StopDialog > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 96%; background: $surface; border: round $accent; padding: 1 2;
    }
    StopDialog Static { height: auto; margin-bottom: 1; }
    StopDialog Horizontal { height: auto; }
    """

    def __init__(
        self, snapshot: Snapshot, find_cost: Callable[[], StopCost] | None = None, *, now: bool = False
    ) -> None:
        """`now` puts the focus on the stop at once, for the key that asks for it."""
        super().__init__()
        self._now = now
        self._stopping = snapshot.status == "stopping"
        self._find_cost = find_cost

    def compose(self) -> ComposeResult:
        title = tr("The run is stopping already.") if self._stopping else tr("Stop this run?")
        with Vertical():
            yield Static(Content.styled(title, "bold"), markup=False)
            yield Static(with_checkpoint_words(None, stopping=self._stopping), id="with-checkpoint", markup=False)
            yield Static(now_words(None), id="at-once", markup=False)
            with Horizontal():
                if self._stopping:
                    yield ActionButton(tr("wait for the checkpoint"), "cancel")
                    yield ActionButton(tr("end it now"), "now")
                else:
                    yield ActionButton(tr("with a checkpoint"), "checkpoint")
                    yield ActionButton(tr("let it run"), "cancel")
                    yield ActionButton(tr("now"), "now")

    def on_mount(self) -> None:
        if self._now:
            self.query_one("#button-now").focus()
        if self._find_cost is not None:
            self._look_up(self._find_cost)

    @work(thread=True, exit_on_error=False)
    def _look_up(self, find_cost: Callable[[], StopCost]) -> None:
        self.app.call_from_thread(self._show, find_cost())

    def _show(self, cost: StopCost) -> None:
        if self.is_attached:
            self.query_one("#with-checkpoint", Static).update(with_checkpoint_words(cost, stopping=self._stopping))
            self.query_one("#at-once", Static).update(now_words(cost))

    @on(ActionButton.Pressed)
    def _pressed(self, message: ActionButton.Pressed) -> None:
        self._answer(message.button.action)

    def action_press(self) -> None:
        if isinstance(self.focused, ActionButton):
            self._answer(self.focused.action)

    def _answer(self, action: str) -> None:
        self.dismiss(None if action == "cancel" else action)

    def action_close(self) -> None:
        self.dismiss(None)
