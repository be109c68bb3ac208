"""Questions of the monitor: which steps to plot, whether to stop a run, whether to go on with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import Window, entry_field
from trainwiz.tui.widgets.plot import HOW_TO_TYPE, StepRange, parse_range

if TYPE_CHECKING:
    from trainwiz.core.launch.actions import StopCost


class RangeDialog(Window[StepRange]):
    """Answers a range inside the steps `low` to `high`, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    RangeDialog > Vertical { width: 66; }
    RangeDialog Input { margin: 1 0; }
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
            yield entry_field("400-900", 80)
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


def _hint() -> str:
    return tr(HOW_TO_TYPE) + "\n" + tr("enter take   esc close")


# Dialogs that ask before something is done to a run.

CANCEL = "cancel"
GOES_DETACHED = mark("It runs detached, as the run did: closing this monitor does not stop it.")


class AskDialog(Window[str]):
    """A title, sentences, and a button for each answer; None is the answer of the button CANCEL and of closing.

    `find` reads files: it runs in a thread, and its sentences take the place of the first ones when it is done.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    AskDialog > Vertical { width: 76; max-height: 96%; padding: 1 2; }
    AskDialog Static { margin-bottom: 1; }
    AskDialog Horizontal { height: auto; }
    """

    def __init__(
        self,
        title: str,
        sentences: Sequence[str],
        answers: Sequence[tuple[str, str]],
        find: Callable[[], Sequence[str]],
        focus: str | None = None,
    ) -> None:
        """`answers`: what stands on a button, and the answer; `focus` is the answer whose button has the focus."""
        super().__init__()
        self._title, self._sentences, self._answers, self._find = title, sentences, answers, find
        self._first_focus = focus

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            for sentence in self._sentences:
                yield Static(sentence, classes="sentence", markup=False)
            with Horizontal():
                for label, answer in self._answers:
                    yield ActionButton(label, answer)

    def on_mount(self) -> None:
        if self._first_focus is not None:
            self.query_one(f"#button-{self._first_focus}").focus()
        self._look_up()

    @work(thread=True, exit_on_error=False)
    def _look_up(self) -> None:
        self.app.call_from_thread(self._show, self._find())

    def _show(self, sentences: Sequence[str]) -> None:
        for static, sentence in zip(self.query(".sentence").results(Static), sentences, strict=False):
            static.update(plain_text(sentence))

    @on(ActionButton.Pressed)
    def _pressed(self, message: ActionButton.Pressed) -> None:
        self._answer(message.button)

    def action_press(self) -> None:
        if isinstance(self.focused, ActionButton):
            self._answer(self.focused)

    def _answer(self, button: ActionButton) -> None:
        self.dismiss(None if button.action == CANCEL else button.action)


def resume_dialog(find_start: Callable[[], str]) -> AskDialog:
    """Asks before a run that has ended is started again; answers "resume". `find_start` says where it goes on."""
    return AskDialog(
        tr("Go on with this run?"),
        (tr("Looking for its newest complete checkpoint."), tr(GOES_DETACHED)),
        ((tr("resume"), "resume"), (tr("leave it"), CANCEL)),
        lambda: (find_start(),),
    )


def stop_dialog(is_stopping: bool, find_cost: Callable[[], StopCost], *, now: bool = False) -> AskDialog:
    """Asks before a run is stopped, and says what each way costs; answers "checkpoint" or "now".

    `now` puts the focus on the stop at once, for the key that asks for it.
    """

    def sentences(cost: StopCost | None) -> tuple[str, str]:
        return with_checkpoint_words(cost, stopping=is_stopping), now_words(cost)

    answers = [(tr("with a checkpoint"), "checkpoint"), (tr("let it run"), CANCEL), (tr("now"), "now")]
    if is_stopping:
        answers = [(tr("wait for the checkpoint"), CANCEL), (tr("end it now"), "now")]
    title = tr("The run is stopping already.") if is_stopping else tr("Stop this run?")
    return AskDialog(title, sentences(None), answers, lambda: sentences(find_cost()), "now" if now else None)
