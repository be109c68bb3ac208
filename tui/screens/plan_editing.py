"""PlanEditing: how values of the plan are changed: rows, their editors and lists, dialogs, buttons beside fields, remedies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.screen import ModalScreen
from trainwiz.core.language import tr
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.screens.plan_effects import numbered_remedies
from trainwiz.tui.screens.plan_fields import FieldSpec, parse_field
from trainwiz.tui.screens.plan_reading import PlanReading
from trainwiz.tui.screens.plan_state import (
    PlanState,
    is_changed,
    state_findings,
    with_changes,
    with_invalid,
    with_values,
)
from trainwiz.tui.screens.plan_step_fields import field_of, fields_of
from trainwiz.tui.screens.plan_views import current_offer, edit_text, free_text_hint, offers
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.remedy_button import RemedyButton
from trainwiz.tui.widgets.step_form import FieldButton
from trainwiz.tui.widgets.step_parts import FIELD_ACTIONS, PartRow, StepPart, open_dialog

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.widgets.step_parts import Answer


class PlanEditing(PlanReading):
    """Takes what the user types and chooses; every change ends in `_change_request`."""

    def __init__(self, state: PlanState, reader: PlanReader | None, tier: RefineTier) -> None:
        super().__init__(state, reader, tier)
        self._before_edit: PlanRequest | None = None

    @on(FieldRow.Clicked)
    def _clicked(self, event: FieldRow.Clicked) -> None:
        self._open(event.row)

    def _open(self, row: FieldRow) -> None:
        """The editor of a row, or its list of values."""
        spec, state = row.spec, self.state
        if spec.opens_a_list:
            from trainwiz.tui.widgets.chooser import Chooser

            known, now = offers(state, spec), current_offer(state, spec)
            self.app.push_screen(Chooser(tr(spec.label), known, now, free_text_hint(spec)), partial(self._chosen, spec))
        elif not row.editing:
            self._before_edit = state.request
            row.begin_edit(edit_text(state, spec))

    def _open_wanted_list(self) -> None:
        """The list that is to be opened, once there is something in it and its row has the focus."""
        spec, row = field_of(self.state.wanted_list), self.focused
        if spec is not None and offers(self.state, spec):
            self._replace(replace(self.state, wanted_list=""))
            if isinstance(row, FieldRow) and row.spec is spec:
                self._open(row)

    def _ask(self, path: str, spec: FieldSpec) -> None:
        """A dialog for a field; what is no dialog is the next request already."""
        answer = open_dialog(path, self.state, spec)
        if isinstance(answer, ModalScreen):
            self.app.push_screen(answer, partial(self._chosen, spec))
        elif answer is not None:
            self._change_request(answer)

    def _chosen(self, spec: FieldSpec, answer: Answer) -> None:
        if answer is not None and isinstance(self.focused, FieldButton):
            # Enter would open the same window again.
            self.focus_next(FieldRow)
        if isinstance(answer, str):
            self._set(spec, answer)
        elif answer is not None:
            self._change_request(answer(self.state.request))

    def _act(self, button: FieldButton) -> None:
        """What a button beside a field does."""
        self._ask(button.does.opens, button.spec)

    def action_import_settings(self) -> None:
        """The button beneath the profile, from every step."""
        spec = field_of("profile")
        assert spec is not None
        self._ask(FIELD_ACTIONS["profile"][0].opens, spec)

    @on(StepPart.Changed)
    def _part_changed(self, event: StepPart.Changed) -> None:
        self._change_request(event.change(self.state.request))

    @on(StepPart.FieldSet)
    def _part_set(self, event: StepPart.FieldSet) -> None:
        spec = field_of(event.field_id)
        assert spec is not None, event.field_id
        self._set(spec, event.text)

    def _set(self, spec: FieldSpec, text: str, *, typed: bool = False) -> None:
        """Take the text of a field; a text that cannot be read leaves the request and says why."""
        try:
            values = parse_field(spec, text, self.state.plan.config if self.state.plan is not None else None)
        except ValueError as error:
            self._replace(with_invalid(self.state, spec.id, str(error)))
            return
        self._replace(with_invalid(self.state, spec.id, ""))
        self._change_request(with_values(self.state.request, spec, values), typed=typed)

    @on(FieldRow.Typed)
    def _typed(self, event: FieldRow.Typed) -> None:
        if event.is_first and self._before_edit is not None:
            # Typed back to where it was: no choice of the user's.
            self._replace(with_invalid(self.state, event.row.spec.id, ""))
            self._change_request(self._before_edit, typed=True)
        else:
            self._set(event.row.spec, event.text, typed=True)

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
        if spec is None or not spec.opens_a_list or isinstance(self.focused, PartRow):
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

    def action_reset_step(self) -> None:
        """Take back the user's values of this step; the profile stays."""
        request = self.state.request
        for spec in fields_of(self.state.step, rare=True):
            if is_changed(self.state, spec):
                request = with_values(request, spec, {})
        if request is not self.state.request:
            self._change_request(request)

    def action_apply_remedy(self, number: int) -> None:
        remedies = numbered_remedies(state_findings(self.state))
        if number <= len(remedies):
            self._change_request(with_changes(self.state.request, remedies[number - 1].changes))

    @on(RemedyButton.Pressed)
    def _remedy_pressed(self, event: RemedyButton.Pressed) -> None:
        self.action_apply_remedy(event.number)
