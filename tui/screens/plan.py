"""PlanScreen: the wizard. One frozen PlanState is replaced in `_replace`; everything drawn follows from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Collapsible
from textual.worker import Worker, WorkerState
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.screens import plan_state as states
from trainwiz.tui.screens import plan_views as views
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, HARDWARE, REVIEW, Setting, parse_field
from trainwiz.tui.screens.plan_state import PlanState
from trainwiz.tui.screens.plan_threads import PlanThreads
from trainwiz.tui.widgets.field_row import ActionButton, FieldInput, FieldRow, RemedyButton
from trainwiz.tui.widgets.frame import HeadLine, HelpCard, KeyBar, StepRail, failure_words
from trainwiz.tui.widgets.lists import Pressed
from trainwiz.tui.widgets.plan_panel import PlanPanel, PlanStrip
from trainwiz.tui.widgets.step_form import (
    FIELD_ACTIONS,
    FieldButton,
    FormScroll,
    GoalRow,
    MoreRow,
    PartRow,
    StepPart,
    focus_target,
)

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.plan_command import Started, StartKind
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.screens.plan_state import Offer, Reading
    from trainwiz.tui.widgets.step_form import Answer

    Then = Callable[[str | None], None] | Callable[[str | None], Awaitable[None]]


FIRST_FRAME_S = 0.05


class PlanScreen(Screen[None]):
    """The five steps, the form, and the plan that follows every change. Folded on narrow and low terminals."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("plan")]
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (70, "-middle"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-short"), (30, "-tall")]

    def __init__(
        self,
        request: PlanRequest,
        *,
        at_review: bool = False,
        reader: PlanReader | None = None,
        tier: RefineTier = "analytic",
    ) -> None:
        """`reader` reads the world; one for `tier` is made after the first frame when none is given."""
        super().__init__()
        step = REVIEW if at_review else HARDWARE
        self.state = PlanState(request, step=step, reached=step)
        self._parts: tuple[HeadLine | StepRail | PlanPanel | PlanStrip, ...] = ()
        self._before_edit: tuple[PlanRequest, str] | None = None
        """The request, and the text that the editor was opened with."""
        self._threads = PlanThreads(self, reader, tier)

    @property
    def reader(self) -> PlanReader | None:
        """What reads the world; None before the first frame is drawn."""
        return self._threads.reader

    @property
    def _wizard(self) -> TrainwizApp:
        return cast("TrainwizApp", self.app)

    def compose(self) -> ComposeResult:
        head, rail, panel = HeadLine(), StepRail(id="rail"), PlanPanel(id="panel")
        strip, self._key_bar = PlanStrip(id="strip"), KeyBar(self._keys)
        self._forms = FormScroll(self.state.step)
        # Every key draws them: looked for each time, they would cost more than what they draw.
        self._parts = (head, rail, panel, strip)
        yield from (head, Container(rail, self._forms, panel, id="body"), strip, self._key_bar)

    async def on_mount(self) -> None:
        if self.state.step == REVIEW:
            # Its buttons are parts, and a key may be meant for them at once.
            await self.complete_first_step()
        self._draw()
        self._focus_step()
        # A pause, so that the imports of the reader do not hold up the first frame on its way to the terminal.
        self.call_after_refresh(self.set_timer, FIRST_FRAME_S, self._begin)
        self.set_interval(60.0, self._date)

    def _date(self) -> None:
        """A run that starts a minute later ends a minute later."""
        if self.state.reading.read_at is not None:
            self._replace(replace(self.state, reading=replace(self.state.reading, read_at=datetime.now())))

    async def complete_first_step(self) -> None:
        await self._forms.complete()
        self._draw()

    def _draw(self) -> None:
        if not self._parts:
            return
        for part in self._parts:
            part.show(self.state)
        self._forms.draw(self.state)
        self._key_bar.refresh_changed()

    async def _show_step(self) -> None:
        focused = self.focused.spec.id if isinstance(self.focused, FieldRow) else ""
        await self._forms.turn_to(self.state.step, more=self.state.more)
        self._draw()
        self._focus_step(focused)

    def _focus_step(self, field_id: str = "") -> None:
        for widget in self.query(focus_target(self.state, field_id)):
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
        if isinstance(self.focused, FieldInput):
            return keys_of("edit")
        return views.shown_keys(self.state, self._spec, on_button=isinstance(self.focused, ActionButton | RemedyButton))

    def on_descendant_focus(self) -> None:
        self.query_one(KeyBar).refresh()

    # The plan: readings come from threads, and one place takes them.

    async def _begin(self) -> None:
        self._threads.change(self.state.request)
        await self.complete_first_step()

    def on_unmount(self) -> None:
        self._threads.close()

    def _replace(self, state: PlanState, *, draw: bool = True) -> None:
        """The one place where the state changes."""
        if state.request is not self.state.request:
            state = replace(state, updating=True, problem="", wanted_start="")
        self.state = state
        if draw:
            self._draw()

    def _change_request(self, request: PlanRequest, *, typed: bool = False) -> None:
        """Plan for another request: at once, or as fast typing allows. A typed one is drawn with its plan, or as slow."""
        self._replace(replace(self.state, request=request), draw=not typed)
        self._threads.change(request, typed=typed)

    def _note_invalid(self, field_id: str, reason: str) -> None:
        """Why the text of the field that was last typed into cannot be read; empty: it can."""
        invalid = {field_id: reason} if reason else {}
        if invalid != self.state.invalid:
            self._replace(replace(self.state, invalid=invalid))

    def note_slow(self) -> None:
        if self.state.updating:
            self._replace(replace(self.state, slow=True))

    async def take_reading(self, request: PlanRequest, reading: Reading, *, is_better: bool = False) -> None:
        """What a thread read for a request; `is_better`: the same plan again, with better figures."""
        state = self.state
        if request is not state.request or state.busy:
            return
        if reading.plan is None and not states.lacks_model(request):
            reading = replace(reading, plan=state.plan)
        done = not reading.waits_for
        self._replace(replace(state, reading=reading, updating=not done, slow=state.slow and not done))
        if done and not is_better:
            self._threads.improve(request)
        if self.state.wanted_start and (states.is_ready(self.state) or states.start_obstacle(self.state)):
            await self._start(cast("StartKind", self.state.wanted_start))

    def plan_again(self) -> None:
        """The rates of this machine are known now."""
        if not self.state.busy:
            self._threads.change(self.state.request)

    # Values: rows, their editors and lists, dialogs, remedies.

    def _open(self, row: FieldRow) -> None:
        """The editor of a row, or its list of values."""
        spec, state = row.spec, self.state
        if spec.opens_a_list:
            known, now = views.offers(state, spec), views.current_offer(state, spec)
            hint = tr(views.FREE_TEXT_HINTS.get(spec.id, "")) if spec.free_text else ""
            self._choose(tr(spec.label), known, now, partial(self._chosen, spec), hint)
        elif not row.editing:
            text = views.edit_text(state, spec)
            self._before_edit = state.request, text
            row.begin_edit(text)

    def _choose(self, title: str, known: Sequence[Offer], now: str, then: Then, hint: str = "") -> None:
        """A list over the screen; `then` gets what was chosen of it. What is so now is in it."""
        from trainwiz.tui.widgets.chooser import Chooser

        if now and now not in {offer.value for offer in known}:
            known = [states.Offer(now), *known]
        self.app.push_screen(Chooser(title, known, now, hint), then)

    def action_act(self, field_id: str) -> None:
        """What the button beneath a field does."""
        dialog = FIELD_ACTIONS[field_id][1](self.state)
        self.app.push_screen(dialog, partial(self._chosen, FIELD_BY_ID[field_id]))

    def _chosen(self, spec: Setting, answer: Answer) -> None:
        if answer is not None and isinstance(self.focused, FieldButton):
            # Enter would open the same window again.
            self.focus_next(FieldRow)
        if isinstance(answer, str):
            self._set(spec, answer)
        elif answer is not None:
            self._change_request(answer(self.state.request))

    @on(StepPart.Changed)
    def _part_changed(self, event: StepPart.Changed) -> None:
        self._change_request(event.change(self.state.request))

    def _set(self, spec: Setting, text: str, *, typed: bool = False) -> None:
        """Take the text of a field; a text that cannot be read leaves the request and says why."""
        try:
            values = parse_field(spec, text, self.state.plan.config if self.state.plan is not None else None)
        except ValueError as error:
            self._note_invalid(spec.id, str(error))
            return
        self._note_invalid(spec.id, "")
        self._change_request(states.with_values(self.state.request, spec, values), typed=typed)

    @on(FieldRow.Typed)
    def _typed(self, event: FieldRow.Typed) -> None:
        before, text = self._before_edit or (self.state.request, "")
        if event.text != text:
            self._set(event.row.spec, event.text, typed=True)
        elif before is not self.state.request or self.state.invalid:
            # Typed back to where it was: no choice of the user's.
            self._note_invalid(event.row.spec.id, "")
            self._change_request(before, typed=True)

    @on(FieldRow.Done)
    async def _typed_last(self, event: FieldRow.Done) -> None:
        row, (before, _) = event.row, self._before_edit or (self.state.request, "")
        unreadable, had_focus = row.spec.id in self.state.invalid, row.editor_has_focus
        if event.keep and unreadable and had_focus:
            return
        await row.end_edit()
        if had_focus:
            row.focus()
        self._note_invalid(row.spec.id, "")
        if (unreadable or not event.keep) and before is not self.state.request:
            self._change_request(before)
        self._before_edit = None
        self._draw()

    def action_next_value(self, by: int) -> None:
        spec = self._spec
        if spec is None or not spec.opens_a_list or isinstance(self.focused, PartRow):
            if isinstance(self.focused, ActionButton):
                self.focus_next(ActionButton) if by > 0 else self.focus_previous(ActionButton)
            return
        value = views.value_beside(self.state, spec, by)
        if value is not None:
            self._set(spec, value)

    def action_reset_field(self) -> None:
        if self._spec is not None:
            self._change_request(states.with_values(self.state.request, self._spec, {}))

    def action_apply_remedy(self, number: int) -> None:
        remedies = states.numbered_remedies(states.state_findings(self.state))
        if number <= len(remedies) and remedies[number - 1].opens:
            self._see_what_fits()
        elif number <= len(remedies):
            self._change_request(states.with_changes(self.state.request, remedies[number - 1].changes))

    def _see_what_fits(self) -> None:
        """The models for some data, which are asked for first."""
        spec, state = FIELD_BY_ID["data"], self.state
        # The demo's are data that nobody wants a larger model for.
        now = "" if states.goal_of(state) == "demo" else views.current_offer(state, spec)
        title, hint = tr("See what fits: which dataset?"), tr(views.FREE_TEXT_HINTS["data"])
        self._choose(title, views.offers(state, spec), now, self._list_fits, hint)

    def _list_fits(self, source: str | None) -> None:
        from trainwiz.tui.widgets.chooser import FitChooser

        if source is None:
            return
        window = FitChooser(self.state, source)

        async def take(row: str | None) -> None:
            if row is not None:
                self._change_request(window.request_of(row))
                await self._go(states.go_to(self.state, REVIEW))

        self.app.push_screen(window, take)

    # Going from step to step and from field to field.

    async def _go(self, state: PlanState) -> None:
        """Replace the state by one with another step; returns when its rows are there."""
        self._replace(state)
        await self._show_step()

    async def action_next_step(self) -> None:
        if isinstance(self.focused, ActionButton | RemedyButton | GoalRow):
            await self._press(self.focused)
        elif self.state.step == REVIEW:
            self._focus_step()
        else:
            await self._go(states.go_to(self.state, self.state.step + 1))

    async def _pursue(self, goal: str) -> None:
        """Take a goal and go on: to the model, whose list opens where none is chosen; or to the list of profiles."""
        if goal == "fit":
            self._see_what_fits()
            return
        is_another = goal != states.goal_of(self.state)
        if goal == "profile" and is_another:
            await self._found("profile")
        else:
            if is_another:
                self._change_request(states.with_goal(self.state.request, goal))
            await self._go(states.go_to(self.state, self.state.step + 1))
            if not states.lacks_model(self.state.request):
                return
        # Before the lists were read there is nothing to open.
        if isinstance(self.focused, FieldRow) and views.offers(self.state, self.focused.spec):
            self._open(self.focused)

    async def action_previous_step(self) -> None:
        if self.state.wanted_start:
            self._replace(replace(self.state, wanted_start=""))
        elif self.state.step > 0:
            await self._go(states.go_to(self.state, self.state.step - 1))

    @on(StepRail.Chosen)
    async def _jump(self, event: StepRail.Chosen) -> None:
        await self._go(states.go_to(self.state, event.step))

    def action_scroll_plan(self, pages: int) -> None:
        panel = self.query_one(PlanPanel)
        panel.scroll_relative(y=pages * max(1, panel.size.height - 2), animate=False)

    def action_toggle_details(self) -> None:
        self._replace(replace(self.state, details=not self.state.details))

    def action_find(self) -> None:
        """A list of all fields; the chosen one gets the focus."""
        self._choose(tr("Find a field"), views.findable_fields(self.state), "", self._found)

    async def _found(self, field_id: str | None) -> None:
        if field_id is None:
            return
        spec = FIELD_BY_ID[field_id]
        await self._go(states.go_to(replace(self.state, more=self.state.more or spec.rare), spec.step))
        self._focus_step(field_id)

    def action_change_field(self) -> None:
        if self.focused is not None:
            # Its part may know better what that means.
            self.focused.post_message(Pressed(self.focused))

    async def action_start(self) -> None:
        await self._start("start")

    @on(Pressed)
    async def _pressed(self, event: Pressed) -> None:
        await self._press(event.widget)

    async def _press(self, widget: Widget) -> None:
        if isinstance(widget, FieldRow):
            self._open(widget)
        elif isinstance(widget, MoreRow):
            await self._go(replace(self.state, more=not self.state.more))
        elif isinstance(widget, GoalRow):
            await self._pursue(widget.goal)
        elif isinstance(widget, RemedyButton):
            self.action_apply_remedy(widget.number)
        elif isinstance(widget, FieldButton):
            self.action_act(widget.spec.id)
        elif isinstance(widget.parent, Collapsible):
            widget.parent.collapsed = not widget.parent.collapsed
        elif isinstance(widget, ActionButton):
            if widget.action == "save":
                self._leave("save")
            else:
                await self._start(cast("StartKind", widget.action))

    async def _start(self, kind: StartKind) -> None:
        """Start now; or as soon as the plan is there; or say why not."""
        state = self.state
        if state.busy:
            return
        last, plan, obstacle = states.go_to(state, REVIEW), state.plan, states.start_obstacle(state, kind)
        if obstacle or plan is None or not states.is_ready(state):
            await self._go(replace(last, problem=obstacle, wanted_start="" if obstacle else kind))
            return
        from trainwiz.tui.screens.plan_command import start_plan

        await self._go(replace(last, busy=mark("writing") if kind == "write" else mark("starting")))
        work = partial(start_plan, kind, plan, state.request, state.reading.folder)
        self.run_worker(work, thread=True, group="start", exclusive=True, exit_on_error=False)

    def _started(self, started: Started) -> None:
        self._replace(replace(self.state, busy="", problem=started.problem))
        if started.folder is None:
            return
        # The memory that a tracer holds belongs to the run now.
        self._threads.close_reader()
        self._wizard.farewell = started.words
        if started.kind == "start":
            from trainwiz.core.telemetry.target import Target
            from trainwiz.tui.screens.monitor import MonitorScreen

            self.app.push_screen(MonitorScreen(Target.of_run(started.folder)))
        else:
            self._wizard.exit(0)

    @on(Worker.StateChanged)
    def _worker_ended(self, event: Worker.StateChanged) -> None:
        """A start is over; or a failure that nobody foresaw, which is a sentence too, and the wizard goes on."""
        worker = event.worker
        if event.state is WorkerState.SUCCESS and worker.group == "start":
            self._started(cast("Started", worker.result))
        elif event.state is WorkerState.ERROR and worker.error is not None:
            self._replace(states.with_defect(self.state, worker.group, failure_words(worker.error)))

    def ask_to_leave(self) -> None:
        """At once where nothing would be lost."""
        if self.state.changed:
            self._choose(*views.ways_to_leave(self.state), "quit", self._leave)
        else:
            self._wizard.exit(0)

    def _leave(self, way: str | None) -> None:
        from trainwiz.tui.widgets.chooser import save_dialog

        if way == "quit":
            self._wizard.exit(0)
        elif way == "save":
            self.app.push_screen(save_dialog(self.state.request), self._saved)

    def _saved(self, words: str | None) -> None:
        if words is not None:
            self.notify(plain_text(words, 400), timeout=8.0, markup=False)

    def action_help(self) -> None:
        from trainwiz.tui.screens.plan_command import help_parts

        title, parts = help_parts(self.state, self._spec, states.state_findings(self.state))
        self.app.push_screen(HelpCard(title, parts, keys_of("plan", "app")))

    def action_copy_command(self) -> None:
        from trainwiz.tui.screens.plan_command import command_line

        self.app.copy_to_clipboard(command_line(self.state.request))
        self.notify(tr("Command copied to the clipboard."), markup=False)
