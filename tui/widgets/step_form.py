"""StepForm: the fields of one step. StepPart: what a step or a field brings beside its rows, with rows that take the focus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult, RenderResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker, WorkerState
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_fields import (
    FIELD_BY_ID,
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
from trainwiz.tui.screens.plan_state import FILES_FOLLOW, PlanState, goal_of
from trainwiz.tui.screens.plan_views import browse_data, browse_model, field_view
from trainwiz.tui.text import pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import ActionButton, FieldRow
from trainwiz.tui.widgets.frame import failure_words
from trainwiz.tui.widgets.lists import Pressed, TextLines

if TYPE_CHECKING:
    from trainwiz.core.config.request import PlanRequest

    Change = Callable[[PlanRequest], PlanRequest]
    """How a request becomes the next one; given to what the request is by then."""
    Answer = str | Change | None
    """What a dialog is dismissed with: a text as if it were typed into the field, a change, or nothing."""
    Draw = Callable[[PlanState, int, bool], Iterable[Content]]
    """Lines for (state, width in cells, whether the screen is small)."""
    from textual.screen import ModalScreen


class StepPart(Widget):
    """A widget of a step that draws a PlanState."""

    DEFAULT_CSS = """
    StepPart { height: auto; width: 1fr; }
    """

    @dataclass
    class Changed(Message):
        """The user chose something in the part: the screen plans for `change(request)`."""

        change: Change

    _state: PlanState | None = None
    _said = ""

    def show(self, state: PlanState) -> None:
        """Draw a state; called for every change while the step is on the screen. Must be quick."""

    def failed(self, sentence: str) -> None:
        """A worker of the part broke off. Said once: what polls would say it again and again."""
        if sentence != self._said:
            self._said = sentence
            self.app.notify(plain_text(sentence), severity="error", markup=False)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        """These messages do not bubble: without this nobody would hear of a failure that nobody foresaw."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.failed(failure_words(event.worker.error))


class LinesPart(StepPart):
    """The lines that a pure function makes of the state."""

    DEFAULT_CSS = """
    LinesPart { layout: vertical; }
    """

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self._lines = TextLines()

    def compose(self) -> ComposeResult:
        yield self._lines

    def show(self, state: PlanState) -> None:
        before = self._state
        # Figures first: a curve costs as much as all of them, and is drawn a moment later.
        if before is None or state.reading.waits_for != FILES_FOLLOW:
            self._state = state
            if before is None or drawn_of(before) != drawn_of(state):
                self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        width = self.size.width
        if self._state is not None and width:
            self._lines.show(list(self.draw(self._state, width, is_small(self))))


def drawn_of(state: PlanState) -> tuple[object, ...]:
    """What the lines of a part follow from; equal where they cannot have changed."""
    return id(state.reading), state.updating, state.slow, state.invalid


def is_small(widget: Widget) -> bool:
    """The screen has no room for what can be done without."""
    return any(widget.screen.has_class(name) for name in ("-low", "-short", "-slim"))


class PartRow(Widget, can_focus=True):
    """A row of a part that takes the focus; its help and reset are those of its field."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    field_id = ""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if self.can_focus:
            self.focus(scroll_visible=False)
            self.post_message(Pressed(self))


def parts() -> Mapping[str | int, Callable[[], StepPart]]:
    """Field id -> what stands beneath its row; step -> what stands beneath all of its rows. Imported when a step is
    completed: the first frame waits for none."""
    from trainwiz.tui.widgets import facts
    from trainwiz.tui.widgets.gpu_choice import GpuChoice
    from trainwiz.tui.widgets.review import Review

    lines: Mapping[str | int, Draw] = {
        "final_learning_rate": facts.rate_facts,
        "data": facts.data_facts,
        "layout": facts.chat_facts,
        "target_column": facts.first_rows,
        "length": facts.lengths,
        HARDWARE: facts.machine_facts,
        MODEL: facts.model_facts,
    }
    return {**{place: partial(LinesPart, draw) for place, draw in lines.items()}, "gpus": GpuChoice, REVIEW: Review}


def _import_settings(state: PlanState) -> ModalScreen[Any]:
    from trainwiz.tui.screens.import_card import ImportCard

    return ImportCard(gives_way=len(state.request.overrides))


FIELD_ACTIONS: Mapping[str, tuple[str, Callable[[PlanState], ModalScreen[Any]]]] = {
    "profile": (mark("Import a file or a command"), _import_settings),
    "model": (mark("Browse files"), browse_model),
    "data": (mark("Browse files"), browse_data),
    "validation_data": (mark("Browse files"), browse_data),
}
"""Field id -> the button beneath its row and the dialog that it opens; what is slow belongs into that."""


GOAL_CELLS = 20


class MoreRow(PartRow):
    """Opens and closes the rarely changed fields."""

    DEFAULT_CSS = """
    MoreRow { height: 2; color: $muted; }
    MoreRow:focus { color: $accent; }
    """

    def __init__(self, hidden: int, *, is_open: bool) -> None:
        super().__init__()
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
        text = tr("show fewer") if self._open else trn("{n} more, rarely changed", "{n} more, rarely changed", hidden)
        return Content(f"\n  {marks.menu if self._open else marks.more} {text}")


class GoalRow(PartRow):
    """One goal of the first step; enter takes it and goes on."""

    field_id = GOAL
    _is_chosen = False

    DEFAULT_CSS = """
    GoalRow { height: 1; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
    GoalRow:focus { background: $panel; }
    """

    def __init__(self, goal: str) -> None:
        super().__init__(id=f"goal-{goal}")
        self.goal = goal

    def show(self, state: PlanState) -> None:
        is_chosen = goal_of(state) == self.goal
        if self._is_chosen != is_chosen:
            self._is_chosen = is_chosen
            self.refresh()

    def render(self) -> RenderResult:
        here, chosen = (marks.here if self.has_focus else " "), (marks.ok if self._is_chosen else " ")
        label, note = GOALS[self.goal]
        name = (pad(tr(label), GOAL_CELLS), "$foreground" if self.has_focus or self._is_chosen else "$muted")
        return Content.assemble((f"{here} {chosen} ", "$accent"), name, (tr(note), "$muted"))


class FieldButton(ActionButton):
    """What can be done with a field beside changing its value; beneath its row."""

    DEFAULT_CSS = """
    FieldButton { margin: 0 0 0 4; }
    """

    def __init__(self, spec: Setting) -> None:
        label, _ = FIELD_ACTIONS[spec.id]
        super().__init__(tr(label), spec.id)
        self.spec = spec


class StepForm(Vertical):
    """Rows are made once; `show` draws a state into them."""

    DEFAULT_CSS = """
    StepForm { height: auto; }
    StepForm > .step-title { text-style: bold; height: 1; margin: 0 0 1 0; }
    StepForm > .group { text-style: bold; height: 1; margin: 1 0 0 0; color: $muted; }
    StepForm > .-before-group { margin: 0; }
    """

    def __init__(self, step: int, *, more: bool) -> None:
        super().__init__(id=f"step-{step}")
        self.step = step
        self.more = more
        self.has_parts = False
        self._titles: dict[str, Static] = {}

    def compose(self) -> ComposeResult:
        specs = fields_of(self.step, self.more)
        first = specs[0].group
        title = "step-title -before-group" if first else "step-title"
        yield Static(tr(STEPS[self.step]), classes=title, markup=False)
        group = ""
        for spec in specs:
            if spec.group != group:
                group = spec.group
                classes = "group -first" if group == first else "group"
                self._titles[group] = Static(tr(group), classes=classes, markup=False)
                yield self._titles[group]
            if spec.id == GOAL:
                yield from (GoalRow(goal) for goal in spec.choices)
                continue
            yield FieldRow(spec)
            if spec.id in FIELD_ACTIONS:
                yield FieldButton(spec)
        yield MoreRow(hidden_fields(self.step, None), is_open=self.more)

    async def add_parts(self) -> None:
        """What the fields and the step bring of their own; after the rows, which the first frame is made of.

        Once: somebody who types fast opens a step while the first one is being completed.
        """
        if self.has_parts:
            return
        self.has_parts = True
        made = parts()
        for spec in fields_of(self.step, self.more):
            if spec.id in made:
                row = self.query_one(f"#field-{spec.id}")
                place = self.children.index(row) + (spec.id in FIELD_ACTIONS)
                await self.mount(made[spec.id](), after=place)
        if self.step in made:
            await self.mount(made[self.step]())

    def show(self, state: PlanState) -> None:
        used = set[str]()
        for child in self.children:
            if isinstance(child, FieldRow):
                child.display = applies(child.spec, state.plan) or child.editing
                child.show(field_view(state, child.spec))
                used |= {child.spec.group} if child.display else set()
            elif isinstance(child, MoreRow):
                child.show(hidden_fields(self.step, state.plan))
            elif isinstance(child, FieldButton):
                child.display = applies(child.spec, state.plan)
            elif isinstance(child, GoalRow):
                used.add(FIELD_BY_ID[GOAL].group)
                child.show(state)
            elif isinstance(child, StepPart) and child.is_mounted:
                # A plan may come while a part is made: it is drawn when it has what it is made of.
                child.show(state)
        # A heading is shown where one of the rows below it is.
        for group, title in self._titles.items():
            title.display = group in used


class FormScroll(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The forms of the steps that were seen, made once and kept; one is shown. The arrow keys move the focus."""

    def __init__(self, step: int) -> None:
        super().__init__(StepForm(step, more=False), id="form")

    async def complete(self) -> None:
        """What the first frame does not wait for: the tables and lists of the step that it shows."""
        for form in self.query(StepForm):
            await form.add_parts()

    def draw(self, state: PlanState) -> None:
        for form in self.children:
            if isinstance(form, StepForm) and form.step == state.step:
                form.show(state)

    async def turn_to(self, step: int, *, more: bool) -> None:
        """Show a step, with or without its rarely changed rows."""
        for form in self.query(StepForm):
            form.display = form.step == step
            if form.step == step and form.more != more:
                await form.remove()
        if not self.query(f"#step-{step}"):
            form = StepForm(step, more=more)
            await self.mount(form)
            await form.add_parts()
        self.scroll_home(animate=False)


def focus_target(state: PlanState, field_id: str) -> str:
    """What takes the focus: the field named, else the first one of the step; on the last step the start button."""
    names = [spec.id for spec in fields_of(state.step, state.more) if applies(spec, state.plan)]
    if state.step == REVIEW and field_id not in names:
        return f"#step-{REVIEW} #button-start"
    name = field_id if field_id in names else names[0]
    return f"#goal-{goal_of(state)}" if name == GOAL else f"#field-{name}"
