"""How values of the plan are changed, and kept as a profile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, Setting, fields_of, parse_field
from trainwiz.tui.screens.plan_maker import numbered_remedies
from trainwiz.tui.screens.plan_reading import PlanReading
from trainwiz.tui.screens.plan_state import (
    PlanState,
    is_changed,
    state_findings,
    with_changes,
    with_invalid,
    with_values,
)
from trainwiz.tui.screens.plan_views import current_offer, edit_text, free_text_hint, offers
from trainwiz.tui.widgets.buttons import ActionButton, RemedyButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.step_form import FIELD_ACTIONS, FieldButton, PartRow, StepPart, open_dialog

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.core.profile.save import SavedProfile
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.widgets.step_form import Answer


# SaveDialog: keeps the choices of the wizard as a profile of the user's own. It asks for a name and overwrites nothing.

LONGEST_NAME = 80
LONGEST_MESSAGE = 400
SHOWN_S = 8.0


class SaveDialog(ModalScreen["SavedProfile | None"]):
    """Answers what was saved, or None when it was closed. A name that cannot be taken is said, and may be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("edit")]
    AUTO_FOCUS = "Input"

    DEFAULT_CSS = """
    SaveDialog { align: center middle; background: $background 60%; }
    SaveDialog > Vertical {
        width: 76; max-width: 96%; height: auto; background: $surface; border: round $accent; padding: 1 2;
    }
    SaveDialog Static { height: auto; }
    SaveDialog Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    SaveDialog #problem { color: $error; }
    SaveDialog .hint { color: $muted; }
    """

    def __init__(self, request: PlanRequest) -> None:
        super().__init__()
        self._request = of_a_setup(request)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(tr("Save as a profile of mine"), "bold"), markup=False)
            entry = Input(placeholder=tr("a name for it"), max_length=LONGEST_NAME, compact=True)
            entry.cursor_blink = False
            yield entry
            yield Static("", id="problem", markup=False)
            hint = tr("enter saves it; existing profiles are never overwritten   esc cancel")
            yield Static(hint, classes="hint", markup=False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one("#problem", Static).update("")

    def action_accept(self) -> None:
        from trainwiz.core.profile.save import save_profile

        name = self.query_one(Input).value.strip()
        problem = tr("Type a name.") if not name else ""
        if name:
            try:
                self.dismiss(save_profile(name, self._request))
            except TrainwizError as error:
                problem = " ".join(finding.message for finding in error.findings)
        self.query_one("#problem", Static).update(Content(plain_text(problem, LONGEST_MESSAGE)))

    def action_cancel(self) -> None:
        self.dismiss(None)


def ask_and_save(app: App[Any], request: PlanRequest) -> None:
    """Ask for a name until it can be saved or the user leaves; then say how the profile is used."""

    def say(saved: SavedProfile | None) -> None:
        if saved is not None:
            words = tr("{name} is saved: trainwiz --profile {name}", name=saved.name)
            app.notify(plain_text(words, LONGEST_MESSAGE), timeout=SHOWN_S, markup=False)

    app.push_screen(SaveDialog(request), say)


def of_a_setup(request: PlanRequest) -> PlanRequest:
    """The request without what belongs to one run: its name, its folder, its mode."""
    from trainwiz.core.config.keys import NOT_IN_PROFILES

    return replace(
        request,
        overrides={key: value for key, value in request.overrides.items() if key not in NOT_IN_PROFILES},
        name=None,
        output_dir=None,
        force=False,
        mode="train",
        overfit_batches=None,
        benchmark_steps=None,
        trace_steps=None,
    )


# PlanEditing: how values of the plan are changed: rows, their editors and lists, dialogs, buttons beside fields, remedies.


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
        spec, row = FIELD_BY_ID.get(self.state.wanted_list), self.focused
        if spec is not None and offers(self.state, spec):
            self._replace(replace(self.state, wanted_list=""))
            if isinstance(row, FieldRow) and row.spec is spec:
                self._open(row)

    def _ask(self, path: str, spec: Setting) -> None:
        """A dialog for a field; what is no dialog is the next request already."""
        answer = open_dialog(path, self.state, spec)
        if isinstance(answer, ModalScreen):
            self.app.push_screen(answer, partial(self._chosen, spec))
        elif answer is not None:
            self._change_request(answer)

    def _chosen(self, spec: Setting, answer: Answer) -> None:
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
        self._ask(FIELD_ACTIONS["profile"][0].opens, FIELD_BY_ID["profile"])

    @on(StepPart.Changed)
    def _part_changed(self, event: StepPart.Changed) -> None:
        self._change_request(event.change(self.state.request))

    @on(StepPart.FieldSet)
    def _part_set(self, event: StepPart.FieldSet) -> None:
        self._set(FIELD_BY_ID[event.field_id], event.text)

    def _set(self, spec: Setting, text: str, *, typed: bool = False) -> None:
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
