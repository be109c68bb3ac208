"""StepForm: the fields of one step, what was found beneath them, and what a step brings beside its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult, RenderResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker, WorkerState
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_fields import (
    GOAL,
    GOALS,
    HARDWARE,
    MODEL,
    REVIEW,
    STEPS,
    Setting,
    applies,
    fields_of,
    hidden_fields,
)
from trainwiz.tui.screens.plan_state import PlanState, goal_of
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.text import cut, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.buttons import ActionButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.lists import Kept

if TYPE_CHECKING:
    from textual.screen import ModalScreen
    from trainwiz.core.config.request import PlanRequest

    Change = Callable[[PlanRequest], PlanRequest]
    """How a request becomes the next one; given to what the request is by then."""
    Answer = str | Change | None
    """What a dialog is dismissed with: a text as if it were typed into the field, a change, or nothing."""


# What a field or a step brings beside its rows: widgets of its own, dialogs, actions. One table for each.
#
# Everything is named by "module:name" and imported when its step is first shown, so nothing here delays the first frame.


class StepPart(Widget):
    """A widget of a step that draws a PlanState. Subclasses are made with (step, marks)."""

    DEFAULT_CSS = """
    StepPart { height: auto; width: 1fr; }
    """

    class Changed(Message):
        """The user chose something in the part: the screen plans for `change(request)`."""

        def __init__(self, change: Change) -> None:
            super().__init__()
            self.change = change

    class FieldSet(Message):
        """The user chose a text for a field: the same as typing it there."""

        def __init__(self, field_id: str, text: str) -> None:
            super().__init__()
            self.field_id = field_id
            self.text = text

    class FieldWanted(Message):
        """The user wants to see a field, on whichever step it is."""

        def __init__(self, field_id: str) -> None:
            super().__init__()
            self.field_id = field_id

    def __init__(self, step: int, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.step = step
        self.marks = marks
        self._said = ""

    def show(self, state: PlanState) -> None:
        """Draw a state; called for every change while the step is on the screen. Must be quick."""

    def redraw(self) -> None:
        """Draw anew, for a part that draws itself. The screen is laid out only where the height changes: that costs most."""
        width, size = self.content_size.width, self.app.size
        is_as_high = width > 0 and self.get_content_height(size, size, width) == self.content_size.height
        self.refresh(layout=not is_as_high)

    def visit(self, shown: bool) -> None:
        """The step came onto the screen or left it: what polls begins and ends here."""

    def failed(self, sentence: str) -> None:
        """A worker of the part broke off. Said once: what polls would say it again and again."""
        if sentence != self._said:
            self._said = sentence
            self.app.notify(plain_text(sentence), severity="error", markup=False)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        """These messages do not bubble: without this nobody would hear of a failure that nobody foresaw."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.failed(unforeseen_words(event.worker.error))


def unforeseen_words(error: BaseException) -> str:
    """What is said of a failure that is a mistake of trainwiz's own."""
    return tr("trainwiz failed where it should not: {kind}: {reason}.", kind=type(error).__name__, reason=error)


class PartRow(Widget, can_focus=True):
    """A row of a part that takes the focus: space presses it, and help and reset are those of its field."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    field_id = ""

    def press(self) -> None:
        """Space, or a click."""


@dataclass(frozen=True, slots=True)
class FieldAction:
    """A button beneath a field.

    `opens` names a function of (state, spec) that gives a dialog, the next request, or None where there is
    nothing to do. It runs in the loop of the screen: what is slow belongs into the dialog.
    """

    id: str
    label: str
    """Marked with `mark`; translated where it is drawn."""
    opens: str
    when: Callable[[PlanState], bool] | None = None
    """Whether the button is shown; None: always."""


FIELD_PARTS: Mapping[str, tuple[str, ...]] = {
    "final_learning_rate": ("trainwiz.tui.widgets.rate_curve:RateCurve",),
    "gpus": ("trainwiz.tui.widgets.gpu_choice:GpuChoice",),
    "data": ("trainwiz.tui.widgets.facts:DataFacts",),
    "target_column": ("trainwiz.tui.widgets.data_table:DataTable",),
    "length": ("trainwiz.tui.widgets.length_histogram:LengthHistogram",),
    "target_length": ("trainwiz.tui.widgets.length_histogram:TargetHistogram",),
}
"""Field id -> StepParts that stand beneath its row."""

STEP_PARTS: Mapping[int, tuple[str, ...]] = {
    HARDWARE: ("trainwiz.tui.widgets.facts:MachineFacts",),
    MODEL: ("trainwiz.tui.widgets.facts:ModelFactsView",),
    REVIEW: ("trainwiz.tui.widgets.review:Review",),
}
"""Step -> StepParts that stand beneath all of its rows."""

FIELD_ACTIONS: Mapping[str, tuple[FieldAction, ...]] = {
    "profile": (
        FieldAction("import", mark("Import a file or a command"), "trainwiz.tui.screens.import_card:import_settings"),
    ),
    "model": (FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_offers:browse_model"),),
    "data": (FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_offers:browse_data"),),
    "validation_data": (FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_offers:browse_data"),),
}
"""Field id -> buttons beneath its row."""


def named(path: str) -> Any:
    """What a "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def make_parts(paths: tuple[str, ...], step: int, marks: Marks) -> list[StepPart]:
    return [named(path)(step, marks) for path in paths]


def open_dialog(path: str, state: PlanState, spec: Setting) -> ModalScreen[Answer] | PlanRequest | None:
    """What a dialog's or an action's function gives for the field."""
    return named(path)(state, spec)  # type: ignore[no-any-return]


# StepForm: the fields of one step, what was found beneath them, and on the last step the review.

GOAL_CELLS = 20


class MoreRow(Kept, Widget, can_focus=True):
    """Opens and closes the rarely changed fields."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    DEFAULT_CSS = """
    MoreRow { height: 2; color: $muted; }
    MoreRow:focus { color: $accent; }
    """

    class Toggled(Message):
        """Space or a click on the row."""

    def __init__(self, marks: Marks, hidden: int, *, is_open: bool) -> None:
        super().__init__()
        self._marks = marks
        self._hidden = hidden
        self._open = is_open

    def show(self, hidden: int) -> None:
        """`hidden` is how many fields are behind the row."""
        self.display = hidden > 0
        if hidden != self._hidden:
            self._hidden = hidden
            self.refresh()

    def render(self) -> RenderResult:
        hidden = self._hidden
        text = tr("fewer") if self._open else trn("{n} more, rarely changed", "{n} more, rarely changed", hidden)
        return Content(f"\n  {self._marks.more if not self._open else self._marks.menu} {text}")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.focus(scroll_visible=False)
        self.post_message(self.Toggled())


class GoalRow(Kept, PartRow):
    """One goal of the first step; enter takes it and goes on."""

    field_id = GOAL

    DEFAULT_CSS = """
    GoalRow { height: 1; color: $muted; }
    GoalRow:focus { background: $panel; }
    """

    class Pressed(Message):
        """Space, or a click."""

        def __init__(self, goal: str) -> None:
            super().__init__()
            self.goal = goal

    def __init__(self, goal: str, marks: Marks) -> None:
        super().__init__(id=f"goal-{goal}")
        self.goal = goal
        self._marks = marks
        self._is_chosen = False

    def show(self, state: PlanState) -> None:
        if self._is_chosen != (goal_of(state) == self.goal):
            self._is_chosen = not self._is_chosen
            self.refresh()

    def render(self) -> RenderResult:
        marks, width = self._marks, self.content_size.width
        here, chosen = (marks.here if self.has_focus else " "), (marks.ok if self._is_chosen else " ")
        label, note = GOALS[self.goal]
        name = (pad(tr(label), GOAL_CELLS), "$foreground" if self.has_focus or self._is_chosen else "$muted")
        note = cut(tr(note), max(0, width - GOAL_CELLS - 4), marks.ellipsis)
        return Content.assemble((f"{here} {chosen} ", "$accent"), name, (note, "$muted"))

    def press(self) -> None:
        self.post_message(self.Pressed(self.goal))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.focus(scroll_visible=False)
        self.press()


class GroupTitle(Kept, Static):
    """The heading of a group of fields; it goes when none of them is shown."""

    def __init__(self, text: str, *, is_first: bool) -> None:
        super().__init__(tr(text), classes="group -first" if is_first else "group", markup=False)


class FieldButton(ActionButton):
    """What can be done with a field beside changing its value."""

    def __init__(self, spec: Setting, action: FieldAction) -> None:
        super().__init__(tr(action.label), f"{spec.id}-{action.id}")
        self.spec = spec
        self.does = action


class FieldButtons(Horizontal):
    """The buttons beneath a row; the line goes when none of them is shown."""

    DEFAULT_CSS = """
    FieldButtons { height: 1; padding: 0 0 0 4; }
    """

    def __init__(self, spec: Setting, actions: tuple[FieldAction, ...]) -> None:
        super().__init__(*(FieldButton(spec, action) for action in actions))
        self._spec = spec

    def show(self, state: PlanState) -> None:
        for button in self.query(FieldButton):
            button.display = button.does.when is None or button.does.when(state)
        self.display = applies(self._spec, state.plan) and any(button.display for button in self.children)


class StepForm(Vertical):
    """Rows are made once; `show` draws a state into them."""

    DEFAULT_CSS = """
    StepForm { height: auto; }
    StepForm > .step-title { text-style: bold; height: 1; margin: 0 0 1 0; }
    StepForm > .group { text-style: bold; height: 1; margin: 1 0 0 0; color: $muted; }
    StepForm > .-before-group { margin: 0; }
    """

    def __init__(self, step: int, marks: Marks, *, more: bool) -> None:
        super().__init__(id=f"step-{step}")
        self.step = step
        self.more = more
        self.has_parts = False
        self._marks = marks

    def compose(self) -> ComposeResult:
        specs = fields_of(self.step, self.more)
        first = specs[0].group
        title = "step-title -before-group" if first else "step-title"
        yield Static(tr(STEPS[self.step]), classes=title, markup=False)
        group = ""
        for spec in specs:
            if spec.group != group:
                group = spec.group
                yield GroupTitle(spec.group, is_first=spec.group == first)
            if spec.id == GOAL:
                yield from (GoalRow(goal, self._marks) for goal in spec.choices)
                continue
            yield FieldRow(spec, self._marks)
            if spec.id in FIELD_ACTIONS:
                yield FieldButtons(spec, FIELD_ACTIONS[spec.id])
        yield MoreRow(self._marks, hidden_fields(self.step, None), is_open=self.more)

    async def add_parts(self) -> None:
        """What the fields and the step bring of their own; after the rows, which the first frame is made of.

        Once: somebody who types fast opens a step while the first one is being completed.
        """
        if self.has_parts:
            return
        self.has_parts = True
        for spec in fields_of(self.step, self.more):
            if spec.id in FIELD_PARTS:
                row = self.query_one(f"#field-{spec.id}")
                place = self.children.index(row) + (spec.id in FIELD_ACTIONS)
                await self.mount_all(make_parts(FIELD_PARTS[spec.id], self.step, self._marks), after=place)
        await self.mount_all(make_parts(STEP_PARTS.get(self.step, ()), self.step, self._marks))

    def show(self, state: PlanState) -> None:
        title: GroupTitle | None = None
        is_used = False
        for child in self.children:
            if isinstance(child, FieldRow):
                child.display = applies(child.spec, state.plan) or child.editing
                child.show(field_view(state, child.spec, self._marks, typing=child.editing))
                is_used = is_used or child.display
            elif isinstance(child, GroupTitle):
                # A heading is shown where one of the rows below it is.
                _use(title, is_used)
                title, is_used = child, False
            elif isinstance(child, MoreRow):
                child.show(hidden_fields(self.step, state.plan))
            elif isinstance(child, GoalRow):
                child.show(state)
                is_used = True
            elif isinstance(child, FieldButtons) or (isinstance(child, StepPart) and child.is_mounted):
                # A plan may come while a part is made: it is drawn when it has what it is made of.
                child.show(state)
        _use(title, is_used)

    def visit(self, shown: bool) -> None:
        """The step came onto the screen or left it."""
        for part in self.query(StepPart):
            part.visit(shown)


def _use(title: GroupTitle | None, is_used: bool) -> None:
    if title is not None:
        title.display = is_used
