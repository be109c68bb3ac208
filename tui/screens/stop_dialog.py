"""StopDialog: asks before a run is stopped, and says what will happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from trainwiz.tui.keys import bindings
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.pace_panel import step_seconds

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


class StopDialog(ModalScreen[str | None]):
    """Answers "checkpoint", "now" or None (the run goes on)."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    StopDialog { align: center middle; background: $background 60%; }
    StopDialog > Vertical {
        width: 66; max-width: 96%; height: auto; background: $surface; border: round $accent; padding: 1 2;
    }
    StopDialog Static { height: auto; margin-bottom: 1; }
    StopDialog Horizontal { height: auto; }
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._stopping = snapshot.status == "stopping"
        self._step_s = snapshot.pace.step_s

    def compose(self) -> ComposeResult:
        wait = "" if self._step_s is None else f" (a step takes {step_seconds(self._step_s)} s)"
        with Vertical():
            if self._stopping:
                yield Static(Content.styled("The run is stopping already.", "bold"), markup=False)
                yield Static(
                    f"It finishes its step{wait} and saves a checkpoint. Ending it now keeps the checkpoints that are "
                    "complete and loses the steps since.",
                    markup=False,
                )
                with Horizontal():
                    yield ActionButton("wait for the checkpoint", "cancel")
                    yield ActionButton("end it now", "now")
            else:
                yield Static(Content.styled("Stop this run?", "bold"), markup=False)
                yield Static(
                    f"It finishes its step{wait}, saves a checkpoint and ends. `trainwiz runs resume` goes on from there.",
                    markup=False,
                )
                with Horizontal():
                    yield ActionButton("stop with a checkpoint", "checkpoint")
                    yield ActionButton("let it run", "cancel")

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
