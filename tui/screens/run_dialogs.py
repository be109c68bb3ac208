"""What the keys of the monitor do to a run, and the dialogs that ask before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static
from trainwiz.core.language import mark, tr
from trainwiz.core.launch import actions
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.plot import HOW_TO_TYPE, StepRange, parse_range

if TYPE_CHECKING:
    from trainwiz.core.launch.actions import StopCost
    from trainwiz.core.telemetry.snapshot import Action, Snapshot
    from trainwiz.core.telemetry.target import Source, Target


# RangeDialog: asks which steps a plot should show.


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


# ResumeDialog: asks before a run that has ended is started again, and says where it goes on.

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


# StopDialog: asks before a run is stopped, and says what each way costs.


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


# RunActions: what the keys of the monitor do to a run. The screen decides which keys there are.


class RunActions(Screen[None]):
    """A screen with `snapshot`, `readonly`, `target`, `look()`. Each action asks first where it cannot be undone;
    one that is not possible says why."""

    snapshot: Snapshot | None
    readonly: bool
    target: Target
    _source: Source | None

    def look(self) -> None:
        """Take a new look soon."""
        raise NotImplementedError

    @property
    def folder(self) -> RunFolder:
        """The run folder of a run of ours; other targets have none to act on."""
        return RunFolder(self.target.path)

    def can(self, action: Action) -> bool:
        """Whether the action is possible now."""
        return not actions.why_not(action, self.snapshot, readonly=self.readonly)

    def _may(self, *wanted: Action) -> bool:
        """Whether one of the actions is possible; where none is, says why."""
        reasons = [actions.why_not(action, self.snapshot, readonly=self.readonly) for action in wanted]
        if all(reasons):
            self.notify(reasons[0], markup=False)
        return not all(reasons)

    def action_pause(self) -> None:
        """Hold a replay, or let it go on."""
        from trainwiz.core.telemetry.replay import ReplaySource

        if isinstance(self._source, ReplaySource):
            self._source.toggle()
            self.look()

    def action_stop(self) -> None:
        self._ask_how_to_stop(now=False)

    def action_stop_now(self) -> None:
        self._ask_how_to_stop(now=True)

    def _ask_how_to_stop(self, now: bool) -> None:
        from trainwiz.core.launch.actions import stop_cost

        snapshot = self.snapshot
        if self._may("stop", "stop_now") and snapshot is not None:
            dialog = StopDialog(snapshot, lambda: stop_cost(self.folder, snapshot), now=now)
            self.app.push_screen(dialog, self._stop)

    def _stop(self, how: str | None) -> None:
        if how is not None:
            said = tr("Asking the run to end now.") if how == "now" else tr("Asking the run to stop.")
            self.notify(said, markup=False)
            self._ask_to_stop(now=how == "now")

    @work(thread=True, group="act", exit_on_error=False)
    def _ask_to_stop(self, now: bool) -> None:
        actions.stop(self.folder, now=now)
        self.app.call_from_thread(self.look)

    def action_resume(self) -> None:

        if self._may("resume"):
            self.app.push_screen(ResumeDialog(lambda: actions.resume_start(self.folder)), self._resume)

    @work(thread=True, group="act", exit_on_error=False)
    def _start_again(self) -> None:
        actions.resume(self.folder)
        self.app.call_from_thread(self.look)

    def _resume(self, wanted: bool | None) -> None:
        if wanted:
            self.notify(tr("Starting the run again."), markup=False)
            self._start_again()

    def action_copy_command(self) -> None:
        from trainwiz.tui.screens.monitor_cards import CommandCard

        if self._may("command") and self.snapshot is not None:
            self.app.push_screen(CommandCard(actions.commands_of(self.folder, self.snapshot.actions)))

    def action_show_plan(self) -> None:
        from trainwiz.tui.screens.plan_card import PlanCard
        from trainwiz.tui.theme import UNICODE_MARKS

        if self._may("plan"):
            self.app.push_screen(PlanCard(self.folder, getattr(self.app, "marks", UNICODE_MARKS)))
