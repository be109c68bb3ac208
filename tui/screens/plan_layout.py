"""PlanLayout: where the parts of the plan screen stand, and how a PlanState is drawn into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from trainwiz.tui.keys import KeyBinding, keys_of
from trainwiz.tui.screens.plan_effects import numbered_remedies
from trainwiz.tui.screens.plan_fields import GOAL, HARDWARE, REVIEW, FieldSpec
from trainwiz.tui.screens.plan_state import PlanState, goal_of, is_changed, state_findings
from trainwiz.tui.screens.plan_step_fields import field_of, fields_of
from trainwiz.tui.screens.plan_views import relabel
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.field_row import FieldInput, FieldRow
from trainwiz.tui.widgets.head_line import HeadLine
from trainwiz.tui.widgets.key_bar import KeyBar
from trainwiz.tui.widgets.plan_strip import PlanStrip
from trainwiz.tui.widgets.plan_views import PlanPanel
from trainwiz.tui.widgets.rail import StepRail
from trainwiz.tui.widgets.remedy_button import RemedyButton
from trainwiz.tui.widgets.step_form import StepForm
from trainwiz.tui.widgets.step_parts import PartRow

if TYPE_CHECKING:
    from trainwiz.tui.app import TrainwizApp


class FormScroll(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Scrolls with the focus and the wheel; the arrow keys move the focus."""


class PlanLayout(Screen[None]):
    """Rail, form, plan, key bar; folded on narrow and low terminals. Draws `state`, changes nothing in it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (70, "-middle"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-short"), (30, "-tall")]

    def __init__(self, state: PlanState) -> None:
        super().__init__()
        self.state = state
        self._parts: tuple[HeadLine | StepRail | PlanPanel | PlanStrip, ...] = ()

    @property
    def _wizard(self) -> TrainwizApp:
        return cast("TrainwizApp", self.app)

    def compose(self) -> ComposeResult:
        marks = self._wizard.marks
        head, rail, panel = HeadLine(marks), StepRail(marks, id="rail"), PlanPanel(marks, id="panel")
        strip, self._key_bar = PlanStrip(marks, id="strip"), KeyBar(self._keys)
        self._forms = FormScroll(StepForm(self.state.step, marks, more=False), id="form")
        # Every key draws them: looked for each time, they would cost more than what they draw.
        self._parts = (head, rail, panel, strip)
        yield head
        yield Container(rail, self._forms, panel, id="body")
        yield strip
        yield self._key_bar

    async def on_mount(self) -> None:
        if self.state.step == REVIEW:
            # Its buttons are parts, and a key may be meant for them at once.
            await self.complete_first_step()
        self._draw()
        self._focus_step()

    async def complete_first_step(self) -> None:
        """What the first frame does not wait for: the tables and lists of the step that it shows."""
        for form in self.query(StepForm):
            if not form.has_parts:
                await form.add_parts()
                form.visit(form.display)
        self._draw()

    def _draw(self) -> None:
        if not self._parts:
            return
        for part in self._parts:
            part.show(self.state)
        for form in self._forms.children:
            if isinstance(form, StepForm) and form.step == self.state.step:
                form.show(self.state)
        self._key_bar.refresh()

    async def _show_step(self) -> None:
        """The rows of a step are made when it is first seen, and kept."""
        step, more, holder = self.state.step, self.state.more, self.query_one(FormScroll)
        focused = self.focused.spec.id if isinstance(self.focused, FieldRow) else ""
        for form in self.query(StepForm):
            if form.display != (form.step == step):
                form.visit(form.step == step)
            form.display = form.step == step
            if form.step == step and form.more != more:
                await form.remove()
        if not self.query(f"#step-{step}"):
            form = StepForm(step, self._wizard.marks, more=more)
            await holder.mount(form)
            await form.add_parts()
            form.visit(True)
        holder.scroll_home(animate=False)
        self._draw()
        self._focus_step(focused)

    def _focus_step(self, field_id: str = "") -> None:
        """The field named, else the first one of the step; on the last step the start button."""
        names = [spec.id for spec in fields_of(self.state.step, self.state.more) if spec.applies(self.state.plan)]
        if self.state.step == REVIEW and field_id not in names:
            target = f"#step-{REVIEW} #button-start"
        else:
            name = field_id if field_id in names else names[0]
            target = f"#goal-{goal_of(self.state)}" if name == GOAL else f"#field-{name}"
        for widget in self.query(target):
            self.set_focus(widget)
        # Rows that were just made have no place yet; with one, the focus is brought into view.
        self.call_after_refresh(self._show_focused)

    def _show_focused(self) -> None:
        if self.focused is not None:
            self.focused.scroll_visible(animate=False)

    @property
    def _spec(self) -> FieldSpec | None:
        """The field that has the focus, or whose editor has it."""
        focused = self.focused.parent if isinstance(self.focused, FieldInput) else self.focused
        if isinstance(focused, PartRow):
            return field_of(focused.field_id)
        return focused.spec if isinstance(focused, FieldRow) else None

    def _keys(self) -> tuple[KeyBinding, ...]:
        """The keys that do something now."""
        if isinstance(self.focused, FieldInput):
            return keys_of("edit")
        remedies = len(numbered_remedies(state_findings(self.state)))
        hidden = set() if remedies else {"plan.remedy_1"}
        if self._spec is None or not is_changed(self.state, self._spec):
            hidden.add("plan.reset")
        if self.state.step != HARDWARE:
            hidden.add("plan.import")
        on_button = isinstance(self.focused, ActionButton | RemedyButton)
        rows = keys_of("plan", "app")
        return tuple(relabel(row, remedies, on_button=on_button) for row in rows if row.id not in hidden)

    def on_descendant_focus(self) -> None:
        self.query_one(KeyBar).refresh()
