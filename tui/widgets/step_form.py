"""StepForm: the fields of one step, what was found beneath them, and on the last step the review."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult, RenderResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static
from trainwiz.core.language import tr, trn
from trainwiz.tui.cells import cut, pad
from trainwiz.tui.screens.plan_field_hardware import GOALS
from trainwiz.tui.screens.plan_fields import GOAL, STEPS, FieldSpec
from trainwiz.tui.screens.plan_state import PlanState, goal_of
from trainwiz.tui.screens.plan_step_fields import fields_of, hidden_fields
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.repaint import Kept
from trainwiz.tui.widgets.step_parts import (
    FIELD_ACTIONS,
    FIELD_PARTS,
    STEP_PARTS,
    FieldAction,
    PartRow,
    StepPart,
    make_parts,
)

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

    def __init__(self, spec: FieldSpec, action: FieldAction) -> None:
        super().__init__(tr(action.label), f"{spec.id}-{action.id}")
        self.spec = spec
        self.does = action


class FieldButtons(Horizontal):
    """The buttons beneath a row; the line goes when none of them is shown."""

    DEFAULT_CSS = """
    FieldButtons { height: 1; padding: 0 0 0 4; }
    """

    def __init__(self, spec: FieldSpec, actions: tuple[FieldAction, ...]) -> None:
        super().__init__(*(FieldButton(spec, action) for action in actions))
        self._spec = spec

    def show(self, state: PlanState) -> None:
        for button in self.query(FieldButton):
            button.display = button.does.when is None or button.does.when(state)
        self.display = self._spec.applies(state.plan) and any(button.display for button in self.children)


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
        for spec in specs:
            if spec.group:
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
                child.display = child.spec.applies(state.plan) or child.editing
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
