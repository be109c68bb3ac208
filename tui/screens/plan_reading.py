"""Where the parts of the plan screen stand, and how it keeps its plan up to date."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.keys import KeyBinding, keys_of
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, GOAL, HARDWARE, REVIEW, Setting, applies, fields_of
from trainwiz.tui.screens.plan_maker import Newest, numbered_remedies
from trainwiz.tui.screens.plan_state import (
    PlanState,
    Reading,
    goal_of,
    is_changed,
    is_ready,
    lacks_model,
    state_findings,
)
from trainwiz.tui.screens.plan_views import relabel
from trainwiz.tui.widgets.buttons import ActionButton, RemedyButton
from trainwiz.tui.widgets.field_row import FieldInput, FieldRow
from trainwiz.tui.widgets.frame import HeadLine, KeyBar, StepRail
from trainwiz.tui.widgets.plan_panel import PlanPanel
from trainwiz.tui.widgets.plan_strip import PlanStrip
from trainwiz.tui.widgets.step_form import PartRow, StepForm

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.plan_reader import PlanReader


# PlanLayout: where the parts of the plan screen stand, and how a PlanState is drawn into them.


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
        names = [spec.id for spec in fields_of(self.state.step, self.state.more) if applies(spec, self.state.plan)]
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
    def _spec(self) -> Setting | None:
        """The field that has the focus, or whose editor has it."""
        focused = self.focused.parent if isinstance(self.focused, FieldInput) else self.focused
        if isinstance(focused, PartRow):
            return FIELD_BY_ID.get(focused.field_id)
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


# PlanReading: how the plan screen keeps its plan up to date: readings come from a thread, and one place takes them.

FIRST_FRAME_S = 0.05
BURST_S = 0.1
"""The first of some fast keys is planned at once, and then at most one in this time."""
TYPING_PAUSE_S = 0.032
"""A key that nothing follows for so long is the last one: it is planned now. Held keys repeat every 30 ms."""
SEEN_AS_SLOW_S = 0.15
DATED_EVERY_S = 10.0
"""How often it is seen to that "done" and the folder's name are of this minute."""


class PlanReading(PlanLayout):
    """Plans in a thread at every change, and takes better plans of the same request as they come."""

    class Read(Message):
        """A worker read something for a request."""

        def __init__(self, request: PlanRequest, reading: Reading, *, is_better: bool = False) -> None:
            super().__init__()
            self.request = request
            self.reading = reading
            self.is_better = is_better
            """The same plan again, with better figures."""

    def __init__(self, state: PlanState, reader: PlanReader | None, tier: RefineTier) -> None:
        super().__init__(state)
        self._reader = reader
        self._tier: RefineTier = tier
        self._wanted, self._better = Newest(), Newest()
        self._pause: Timer | None = None
        self._planned_at = -BURST_S
        self._slow: Timer | None = None

    @property
    def reader(self) -> PlanReader | None:
        """What reads the world; None before the first frame is drawn."""
        return self._reader

    async def on_mount(self) -> None:
        # A pause, so that the imports of the reader do not hold up the first frame on its way to the terminal.
        self.call_after_refresh(self.set_timer, FIRST_FRAME_S, self._begin)
        self.set_interval(DATED_EVERY_S, self._date)

    async def _begin(self) -> None:
        self._read_world()
        await self.complete_first_step()

    def _date(self) -> None:
        """A plan that stands here for a while is for a start now, not for one when it was made."""
        state = self.state
        if self._reader is None or state.busy or not is_ready(state) or state.reading.findings:
            return
        reading = self._reader.dated(state.request, state.reading)
        if reading is not state.reading:
            self._replace(replace(state, reading=reading))

    def on_unmount(self) -> None:
        self._wanted.close()
        self._better.close()
        self._close_reader()

    def _replace(self, state: PlanState) -> None:
        """The one place where the state changes."""
        if state.request is not self.state.request:
            state = replace(state, updating=True, problem="", wanted_start="")
        self.state = state
        self._draw()

    async def _taken(self) -> None:
        """Called after a reading was taken."""

    def _change_request(self, request: PlanRequest, *, typed: bool = False) -> None:
        """Plan for another request: at once, or as fast typing allows."""
        self._replace(replace(self.state, request=request))
        if self._pause is not None:
            self._pause.stop()
            self._pause = None
        now = time.monotonic()
        if typed and now - self._planned_at < BURST_S:
            self._pause = self.set_timer(min(TYPING_PAUSE_S, self._planned_at + BURST_S - now), self._read_world)
        else:
            self._read_world()

    def _read_world(self) -> None:
        """Read what the request needs. What is on the screen stays until then."""
        self._planned_at = time.monotonic()
        if self._slow is not None:
            self._slow.stop()
        self._slow = self.set_timer(SEEN_AS_SLOW_S, self._note_slow)
        self._better.stale()
        if self._wanted.put(self.state.request):
            self.run_worker(self._work, thread=True, group="plan", exit_on_error=False)

    def _note_slow(self) -> None:
        if self.state.updating:
            self._replace(replace(self.state, slow=True))

    def _work(self) -> None:
        """In a thread: the plan by what is known, for the newest request, until there is no newer one."""
        if self._reader is None:
            from trainwiz.tui.screens.plan_reader import PlanReader

            self._reader = PlanReader(tier=self._tier)
        reader = self._reader

        def plan(request: PlanRequest) -> None:
            for reading in reader.read(request, lambda: self._wanted.is_stale(request)):
                self.post_message(self.Read(request, reading))

        self._work_through(self._wanted, plan)

    def _work_better(self) -> None:
        """In a thread: better figures, which wait for another process; a change of the request ends the wait."""
        reader = self._reader
        assert reader is not None

        def improve(request: PlanRequest) -> None:
            def post(reading: Reading) -> None:
                self.post_message(self.Read(request, reading, is_better=True))

            reader.improve(request, lambda: self._better.is_stale(request), post)

        self._work_through(self._better, improve)

    @staticmethod
    def _work_through(wanted: Newest, work: Callable[[PlanRequest], None]) -> None:
        try:
            while (request := wanted.take()) is not None:
                work(request)
        except BaseException:
            wanted.drop()
            raise

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @on(Read)
    async def _take(self, event: Read) -> None:
        state, reading = self.state, event.reading
        if event.request is not state.request or state.busy:
            return
        if reading.plan is None and not lacks_model(state.request):
            reading = replace(reading, plan=state.plan)
        done = not reading.waits_for
        self._replace(replace(state, reading=reading, updating=not done, slow=state.slow and not done))
        if done and not event.is_better and self._better.put(event.request):
            self.run_worker(self._work_better, thread=True, group="better", exit_on_error=False)
        await self._taken()
