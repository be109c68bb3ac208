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
from trainwiz.tui.figures import duration
from trainwiz.tui.keys import bindings
from trainwiz.tui.widgets.action_button import ActionButton

if TYPE_CHECKING:
    from trainwiz.core.run.actions import StopCost
    from trainwiz.core.telemetry.snapshot import Snapshot

SHORT_S = 1.0
WORTH_TELLING_S = 10.0
"""Work that is lost for less than this is not spoken of."""


def with_checkpoint_words(cost: StopCost | None, *, stopping: bool = False) -> str:
    """What a stop with a checkpoint does and what it costs."""
    if stopping:
        begin = "It is asked already: it saves a checkpoint and ends"
    else:
        begin = "With a checkpoint: it saves one and ends; `trainwiz runs resume` goes on from there"
    if cost is None or cost.wait_s is None:
        return f"{begin}."
    again = ""
    if cost.again_s and cost.again_s > max(cost.wait_s, WORTH_TELLING_S):
        again = f" The step under way is dropped: up to {duration(cost.again_s)} of work are computed again."
    first = f"{begin}. It begins to save within {duration(max(cost.wait_s, SHORT_S))}."
    return f"{first}{again} After {duration(cost.patience_s)} it is ended without."


def now_words(cost: StopCost | None) -> str:
    """What a stop at once loses."""
    if cost is None:
        return "Now: it ends at once, without a checkpoint. The complete ones stay, the steps since are lost."
    if cost.lost_steps is None:
        return "Now: it ends at once. No step was logged yet."
    lost = "nothing" if not cost.lost_steps else f"{cost.lost_steps:,} step{'s' if cost.lost_steps > 1 else ''}"
    if cost.lost_steps and cost.lost_s is not None:
        lost += f", about {duration(cost.lost_s)} of work"
    since = f"since {cost.checkpoint}" if cost.checkpoint else "all so far: there is no checkpoint yet"
    return f"Now: it ends at once and loses {lost} ({since})."


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
        title = "The run is stopping already." if self._stopping else "Stop this run?"
        with Vertical():
            yield Static(Content.styled(title, "bold"), markup=False)
            yield Static(with_checkpoint_words(None, stopping=self._stopping), id="with-checkpoint", markup=False)
            yield Static(now_words(None), id="at-once", markup=False)
            with Horizontal():
                if self._stopping:
                    yield ActionButton("wait for the checkpoint", "cancel")
                    yield ActionButton("end it now", "now")
                else:
                    yield ActionButton("with a checkpoint", "checkpoint")
                    yield ActionButton("let it run", "cancel")
                    yield ActionButton("now", "now")

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
