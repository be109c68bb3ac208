"""RangeDialog: asks which steps a plot should show."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from trainwiz.core.language import tr
from trainwiz.tui.keys import bindings
from trainwiz.tui.widgets.plot_range import HOW_TO_TYPE, StepRange, parse_range


class RangeDialog(ModalScreen[StepRange | None]):
    """Answers a range inside the steps `low` to `high`, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    RangeDialog { align: center middle; background: $background 60%; }
    RangeDialog > Vertical {
        width: 66; max-width: 96%; height: auto; background: $surface; border: round $accent; padding: 0 1;
    }
    RangeDialog Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    RangeDialog Static { height: auto; }
    RangeDialog #said { color: $muted; }
    RangeDialog #said.-wrong { color: $error; }
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self._low, self._high = low, high

    def compose(self) -> ComposeResult:
        with Vertical():
            heading = tr("Steps to show (of {first} to {last})", first=f"{self._low:,.0f}", last=f"{self._high:,.0f}")
            yield Static(Content.styled(heading, "bold"), markup=False)
            entry = Input(placeholder="400-900", max_length=80, compact=True)
            entry.cursor_blink = False
            yield entry
            yield Static(_hint(), id="said", markup=False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one("#said", Static).remove_class("-wrong").update(_hint())

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            wanted = parse_range(event.value, self._low, self._high)
        except ValueError as error:
            self.query_one("#said", Static).add_class("-wrong").update(f"! {error}")
        else:
            self.dismiss(wanted)

    def action_move(self, by: int) -> None:
        """There is no list to move in."""

    def action_close(self) -> None:
        self.dismiss(None)


def _hint() -> str:
    return tr(HOW_TO_TYPE) + "\n" + tr("enter take   esc close")
