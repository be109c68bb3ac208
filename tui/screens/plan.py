"""PlanScreen: the wizard. One frozen PlanState is replaced in `_replace`; everything drawn follows from it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType
from textual.message import Message
from textual.worker import Worker, WorkerState
from trainwiz.core.findings import Finding
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.keys import bindings, keys_of
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_field_table import FIELD_BY_ID
from trainwiz.tui.screens.plan_fields import REVIEW, FieldSpec, parse_field
from trainwiz.tui.screens.plan_help import help_parts
from trainwiz.tui.screens.plan_reading import PlanReading
from trainwiz.tui.screens.plan_state import (
    PlanState,
    first_state,
    go_to,
    is_ready,
    start_obstacle,
    with_changes,
    with_invalid,
    with_values,
)
from trainwiz.tui.screens.plan_views import current_offer, edit_text, findable_fields, free_text_hint, offers
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.plan_panel import numbered_remedies
from trainwiz.tui.widgets.plan_views import PlanPanel, state_findings
from trainwiz.tui.widgets.rail import StepRail
from trainwiz.tui.widgets.step_form import MoreRow

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.screens.plan_starter import Started, StartKind


class PlanScreen(PlanReading):
    """The five steps, the form, and the plan that follows every change."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("plan")]

    class StartDone(Message):
        """A start came to its end, well or not."""

        def __init__(self, started: Started) -> None:
            super().__init__()
            self.started = started

    def __init__(
        self,
        request: PlanRequest,
        *,
        at_review: bool = False,
        reader: PlanReader | None = None,
        tier: RefineTier = "analytic",
    ) -> None:
        """`reader` reads the world; one for `tier` is made after the first frame when none is given."""
        super().__init__(first_state(request, at_review=at_review), reader, tier)
        self._before_edit: PlanRequest | None = None

    async def _taken(self) -> None:
        if self.state.wanted_start and (is_ready(self.state) or start_obstacle(self.state)):
            await self._start(cast("StartKind", self.state.wanted_start))

    async def _go(self, state: PlanState) -> None:
        """Replace the state by one with another step; returns when its rows are there."""
        self._replace(state)
        await self._show_step()

    # Going from step to step and from field to field.

    async def action_next_step(self) -> None:
        if isinstance(self.focused, ActionButton):
            await self._press(self.focused)
        elif self.state.step == REVIEW:
            self._focus_step()
        else:
            await self._go(go_to(self.state, self.state.step + 1))

    async def action_previous_step(self) -> None:
        if self.state.wanted_start:
            self._replace(replace(self.state, wanted_start=""))
        elif self.state.step > 0:
            await self._go(go_to(self.state, self.state.step - 1))

    @on(StepRail.Chosen)
    async def _jump(self, event: StepRail.Chosen) -> None:
        await self._go(go_to(self.state, event.step))

    def action_next_field(self) -> None:
        self.focus_next()

    def action_previous_field(self) -> None:
        self.focus_previous()

    def action_scroll_plan(self, pages: int) -> None:
        panel = self.query_one(PlanPanel)
        panel.scroll_relative(y=pages * max(1, panel.size.height - 2), animate=False)

    def action_find(self) -> None:
        """A list of all fields; the chosen one gets the focus."""
        from trainwiz.tui.widgets.chooser import Chooser

        known = findable_fields(self.state)
        self.app.push_screen(Chooser("Find a value", known, ""), self._found)

    async def _found(self, field_id: str | None) -> None:
        if field_id is None:
            return
        spec = FIELD_BY_ID[field_id]
        await self._go(go_to(replace(self.state, more=self.state.more or spec.rare), spec.step))
        self._focus_step(field_id)

    # Changing values.

    async def action_change_field(self) -> None:
        if isinstance(self.focused, FieldRow):
            self._open(self.focused)
        elif isinstance(self.focused, MoreRow):
            await self._toggle_more()
        elif isinstance(self.focused, ActionButton):
            await self._press(self.focused)

    @on(FieldRow.Clicked)
    def _clicked(self, event: FieldRow.Clicked) -> None:
        self._open(event.row)

    def _open(self, row: FieldRow) -> None:
        """The editor of a row, or its list of values."""
        spec, state = row.spec, self.state
        if spec.opens_a_list:
            from trainwiz.tui.widgets.chooser import Chooser

            known, now = offers(state, spec), current_offer(state, spec)
            self.app.push_screen(Chooser(spec.label, known, now, free_text_hint(spec)), partial(self._chosen, spec))
        elif not row.editing:
            self._before_edit = state.request
            row.begin_edit(edit_text(state, spec))

    def _chosen(self, spec: FieldSpec, value: str | None) -> None:
        if value is not None:
            self._set(spec, value)

    def _set(self, spec: FieldSpec, text: str, *, pause: bool = False) -> None:
        """Take the text of a field; a text that cannot be read leaves the request and says why."""
        try:
            values = parse_field(spec, text, self.state.plan.config if self.state.plan is not None else None)
        except ValueError as error:
            self._replace(with_invalid(self.state, spec.id, str(error)))
            return
        self._replace(with_invalid(self.state, spec.id, ""))
        self._change_request(with_values(self.state.request, spec, values), pause=pause)

    @on(FieldRow.Typed)
    def _typed(self, event: FieldRow.Typed) -> None:
        if event.is_first and self._before_edit is not None:
            # Typed back to where it was: no choice of the user's.
            self._replace(with_invalid(self.state, event.row.spec.id, ""))
            self._change_request(self._before_edit, pause=True)
        else:
            self._set(event.row.spec, event.text, pause=True)

    @on(FieldRow.Done)
    async def _typed_last(self, event: FieldRow.Done) -> None:
        row, before = event.row, self._before_edit
        unreadable = row.spec.id in self.state.invalid
        if event.keep and unreadable and row.editor_has_focus:
            return
        had_focus = row.editor_has_focus
        await row.end_edit()
        if had_focus:
            row.focus()
        if unreadable:
            self._replace(with_invalid(self.state, row.spec.id, ""))
        if before is not None and (unreadable or not event.keep) and before is not self.state.request:
            self._change_request(before)
        self._before_edit = None
        self._draw()

    def action_next_value(self, by: int) -> None:
        """The value beside the present one in the list of a field."""
        spec = self._spec
        if spec is None or not spec.opens_a_list:
            if isinstance(self.focused, ActionButton):
                self.focus_next(ActionButton) if by > 0 else self.focus_previous(ActionButton)
            return
        values = [offer.value for offer in offers(self.state, spec)]
        now = current_offer(self.state, spec)
        if values:
            index = (values.index(now) + by) % len(values) if now in values else 0
            self._set(spec, values[index])

    def action_reset_field(self) -> None:
        if self._spec is not None:
            self._change_request(with_values(self.state.request, self._spec, {}))

    def action_apply_remedy(self, number: int) -> None:
        remedies = numbered_remedies(state_findings(self.state))
        if number <= len(remedies):
            self._change_request(with_changes(self.state.request, remedies[number - 1].changes))

    @on(MoreRow.Toggled)
    async def _toggle_more(self) -> None:
        await self._go(replace(self.state, more=not self.state.more))

    # Starting.

    async def action_start(self) -> None:
        await self._start("start")

    @on(ActionButton.Pressed)
    async def _pressed(self, event: ActionButton.Pressed) -> None:
        await self._press(event.button)

    async def _press(self, button: ActionButton) -> None:
        if button.action == "save":
            from trainwiz.tui.screens.plan_saving import ask_and_save

            ask_and_save(self.app, self.state.request)
        else:
            await self._start(cast("StartKind", button.action))

    async def _start(self, kind: StartKind) -> None:
        """Start now; or as soon as the plan is there; or say why not."""
        state = self.state
        if state.busy:
            return
        obstacle = start_obstacle(state, kind)
        if obstacle or not is_ready(state):
            await self._go(replace(go_to(state, REVIEW), problem=obstacle, wanted_start="" if obstacle else kind))
            return
        await self._go(replace(go_to(state, REVIEW), busy="writing" if kind == "write" else "starting"))
        self.run_worker(
            partial(self._work_start, kind, state), thread=True, group="start", exclusive=True, exit_on_error=False
        )

    def _work_start(self, kind: StartKind, state: PlanState) -> None:
        from trainwiz.tui.screens.plan_starter import start_plan

        assert state.plan is not None
        self.post_message(self.StartDone(start_plan(kind, state.plan, state.request)))

    @on(StartDone)
    def _start_done(self, event: StartDone) -> None:
        started = event.started
        self._replace(replace(self.state, busy="", problem=started.problem))
        if started.folder is None:
            return
        # The memory that a tracer holds belongs to the run now.
        self._close_reader()
        if started.kind == "start":
            from trainwiz.core.telemetry.target import Target
            from trainwiz.tui.screens.monitor import MonitorScreen

            self._wizard.farewell = started.words
            self.app.push_screen(MonitorScreen(Target.of_run(started.folder)))
        else:
            self._wizard.leave_with(started.words)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        """A failure that nobody foresaw is a sentence too, and the wizard goes on."""
        if event.state is not WorkerState.ERROR:
            return
        error = event.worker.error
        message = f"trainwiz failed where it should not: {type(error).__name__}: {error}."
        finding = Finding("defect", "error", event.worker.group, message)
        reading = replace(self.state.reading, findings=(finding,), waits_for="")
        self._replace(replace(self.state, reading=reading, updating=False, slow=False, busy="", problem=message))

    # Help.

    def action_help(self) -> None:
        from trainwiz.tui.widgets.help_card import HelpCard

        title, parts = help_parts(self.state, self._spec, state_findings(self.state))
        self.app.push_screen(HelpCard(title, parts, keys_of("plan", "app")))

    def action_copy_command(self) -> None:
        self.app.copy_to_clipboard(command_line(self.state.request))
        self.notify("The command is in the clipboard.", markup=False)
