"""PlanScreen: the wizard. One frozen PlanState is replaced in `_replace`; everything drawn follows from it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType
from textual.message import Message
from textual.worker import Worker, WorkerState
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.language import tr, trn
from trainwiz.tui.keys import REMEDY_KEYS, bindings, keys_of
from trainwiz.tui.screens.plan_editing import PlanEditing
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, REVIEW, STEPS
from trainwiz.tui.screens.plan_state import (
    Offer,
    PlanState,
    first_state,
    go_to,
    goal_of,
    is_ready,
    lacks_model,
    start_obstacle,
    state_findings,
    with_goal,
)
from trainwiz.tui.screens.plan_views import findable_fields
from trainwiz.tui.widgets.buttons import ActionButton, RemedyButton
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.frame import StepRail
from trainwiz.tui.widgets.plan_panel import PlanPanel
from trainwiz.tui.widgets.step_form import FieldButton, GoalRow, MoreRow, PartRow, StepPart, unforeseen_words

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.screens.plan_command import Started, StartKind
    from trainwiz.tui.screens.plan_reader import PlanReader


OTHER_REMEDIES = frozenset(f"plan.remedy_{digit}" for digit in REMEDY_KEYS[1:])


class PlanScreen(PlanEditing):
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

    async def _taken(self) -> None:
        self._open_wanted_list()
        if self.state.wanted_start and (is_ready(self.state) or start_obstacle(self.state)):
            await self._start(cast("StartKind", self.state.wanted_start))

    async def _go(self, state: PlanState) -> None:
        """Replace the state by one with another step; returns when its rows are there."""
        self._replace(state)
        await self._show_step()

    # Going from step to step and from field to field.

    async def action_next_step(self) -> None:
        if isinstance(self.focused, RemedyButton):
            self.action_apply_remedy(self.focused.number)
        elif isinstance(self.focused, ActionButton):
            await self._press(self.focused)
        elif isinstance(self.focused, GoalRow):
            await self._pursue(self.focused.goal)
        elif self.state.step == REVIEW:
            self._focus_step()
        else:
            await self._go(go_to(self.state, self.state.step + 1))

    @on(GoalRow.Pressed)
    async def _goal_pressed(self, event: GoalRow.Pressed) -> None:
        await self._pursue(event.goal)

    async def _pursue(self, goal: str) -> None:
        """Take a goal and go on: to the model, whose list opens where none is chosen; or to the list of profiles."""
        is_another = goal != goal_of(self.state)
        if goal == "profile" and is_another:
            await self._found("profile")
            self._replace(replace(self.state, wanted_list="profile"))
        else:
            if is_another:
                self._change_request(with_goal(self.state.request, goal))
            await self._go(go_to(self.state, self.state.step + 1))
            if lacks_model(self.state.request):
                self._replace(replace(self.state, wanted_list="model"))
        self._open_wanted_list()

    async def action_previous_step(self) -> None:
        if self.state.wanted_start:
            self._replace(replace(self.state, wanted_start=""))
        elif self.state.step > 0:
            await self._go(go_to(self.state, self.state.step - 1))

    @on(StepRail.Chosen)
    async def _jump(self, event: StepRail.Chosen) -> None:
        await self._go(go_to(self.state, event.step))

    def action_choose_step(self) -> None:
        """A list of the steps that were seen; the chosen one is shown."""
        from trainwiz.tui.widgets.chooser import Chooser

        state = self.state
        seen = [Offer(str(step), tr(name)) for step, name in enumerate(STEPS[: state.reached + 1])]
        self.app.push_screen(Chooser(tr("Go to a step"), seen, str(state.step)), self._to_step)

    async def _to_step(self, step: str | None) -> None:
        if step is not None:
            await self._go(go_to(self.state, int(step)))

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
        self.app.push_screen(Chooser(tr("Find a value"), known, ""), self._found)

    async def _found(self, field_id: str | None) -> None:
        if field_id is None:
            return
        spec = FIELD_BY_ID[field_id]
        await self._go(go_to(replace(self.state, more=self.state.more or spec.rare), spec.step))
        self._focus_step(field_id)

    @on(StepPart.FieldWanted)
    async def _wanted_field(self, event: StepPart.FieldWanted) -> None:
        await self._found(event.field_id)

    async def action_change_field(self) -> None:
        if isinstance(self.focused, FieldRow):
            self._open(self.focused)
        elif isinstance(self.focused, MoreRow):
            await self._toggle_more()
        elif isinstance(self.focused, RemedyButton):
            self.action_apply_remedy(self.focused.number)
        elif isinstance(self.focused, ActionButton):
            await self._press(self.focused)
        elif isinstance(self.focused, PartRow):
            self.focused.press()

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
        if isinstance(button, FieldButton):
            self._act(button)
        elif button.action == "save":
            self._save()
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
        from trainwiz.tui.screens.plan_command import start_plan

        assert state.plan is not None
        self.post_message(self.StartDone(start_plan(kind, state.plan, state.request, state.reading.folder)))

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
        assert event.worker.error is not None
        message = unforeseen_words(event.worker.error)
        finding = Finding("defect", "error", event.worker.group, message)
        reading = replace(self.state.reading, findings=(finding,), waits_for="")
        self._replace(replace(self.state, reading=reading, updating=False, slow=False, busy="", problem=message))

    # Leaving and help.

    def ask_to_leave(self) -> None:
        """At once where nothing would be lost."""
        if not self.state.changed:
            self._wizard.exit(0)
            return
        from trainwiz.tui.widgets.chooser import Chooser

        title = trn(
            "Quit? {n} value that you chose is not saved.",
            "Quit? {n} values that you chose are not saved.",
            self.state.changed,
        )
        ways = [
            Offer("quit", tr("quit"), tr("the command that does the same is printed")),
            Offer("save", tr("save"), tr("as a profile of yours, and stay")),
            Offer("stay", tr("stay"), tr("nothing changes")),
        ]
        self.app.push_screen(Chooser(title, ways, "quit"), self._leave)

    def _leave(self, way: str | None) -> None:
        if way == "quit":
            self._wizard.exit(0)
        elif way == "save":
            self._save()

    def _save(self) -> None:
        from trainwiz.tui.screens.plan_editing import ask_and_save

        ask_and_save(self.app, self.state.request)

    def action_help(self) -> None:
        from trainwiz.tui.screens.plan_command import help_parts
        from trainwiz.tui.widgets.frame import HelpCard

        title, parts = help_parts(self.state, self._spec, state_findings(self.state))
        # The line of the first remedy's key stands for all of them, as in the key bar.
        rows = [row for row in keys_of("plan", "app") if row.id not in OTHER_REMEDIES]
        self.app.push_screen(HelpCard(title, parts, rows))

    def action_copy_command(self) -> None:
        from trainwiz.tui.screens.plan_command import command_line

        self.app.copy_to_clipboard(command_line(self.state.request))
        self.notify(tr("The command is in the clipboard."), markup=False)
