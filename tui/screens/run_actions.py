"""RunActions: what the keys of the monitor do to a run. The screen decides which keys there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.screen import Screen
from trainwiz.core.language import tr
from trainwiz.core.run import actions
from trainwiz.core.run.folder import RunFolder

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action, Snapshot
    from trainwiz.core.telemetry.source import Source
    from trainwiz.core.telemetry.target import Target


class RunActions(Screen[None]):
    """A screen with `snapshot`, `readonly`, `target`, `look()`. Each action asks first where it cannot be undone;
    one that is not possible says why."""

    snapshot: Snapshot | None
    readonly: bool
    target: Target
    _source: Source | None

    def look(self) -> None:
        """Take a new look soon."""
        raise NotImplementedError

    @property
    def folder(self) -> RunFolder:
        """The run folder of a run of ours; other targets have none to act on."""
        return RunFolder(self.target.path)

    def can(self, action: Action) -> bool:
        """Whether the action is possible now."""
        return not actions.why_not(action, self.snapshot, readonly=self.readonly)

    def _may(self, *wanted: Action) -> bool:
        """Whether one of the actions is possible; where none is, says why."""
        reasons = [actions.why_not(action, self.snapshot, readonly=self.readonly) for action in wanted]
        if all(reasons):
            self.notify(reasons[0], markup=False)
        return not all(reasons)

    def action_pause(self) -> None:
        """Hold a replay, or let it go on."""
        from trainwiz.core.telemetry.replay import ReplaySource

        if isinstance(self._source, ReplaySource):
            self._source.toggle()
            self.look()

    def action_stop(self) -> None:
        self._ask_how_to_stop(now=False)

    def action_stop_now(self) -> None:
        self._ask_how_to_stop(now=True)

    def _ask_how_to_stop(self, now: bool) -> None:
        from trainwiz.core.run.stop_cost import stop_cost
        from trainwiz.tui.screens.stop_dialog import StopDialog

        snapshot = self.snapshot
        if self._may("stop", "stop_now") and snapshot is not None:
            dialog = StopDialog(snapshot, lambda: stop_cost(self.folder, snapshot), now=now)
            self.app.push_screen(dialog, self._stop)

    def _stop(self, how: str | None) -> None:
        if how is not None:
            said = tr("Asking the run to end now.") if how == "now" else tr("Asking the run to stop.")
            self.notify(said, markup=False)
            self._ask_to_stop(now=how == "now")

    @work(thread=True, group="act", exit_on_error=False)
    def _ask_to_stop(self, now: bool) -> None:
        actions.stop(self.folder, now=now)
        self.app.call_from_thread(self.look)

    def action_resume(self) -> None:
        from trainwiz.tui.screens.resume_dialog import ResumeDialog

        if self._may("resume"):
            self.app.push_screen(ResumeDialog(lambda: actions.resume_start(self.folder)), self._resume)

    @work(thread=True, group="act", exit_on_error=False)
    def _start_again(self) -> None:
        actions.resume(self.folder)
        self.app.call_from_thread(self.look)

    def _resume(self, wanted: bool | None) -> None:
        if wanted:
            self.notify(tr("Starting the run again."), markup=False)
            self._start_again()

    def action_copy_command(self) -> None:
        from trainwiz.tui.screens.command_card import CommandCard

        if self._may("command") and self.snapshot is not None:
            self.app.push_screen(CommandCard(actions.commands_of(self.folder, self.snapshot.actions)))

    def action_show_plan(self) -> None:
        from trainwiz.tui.screens.plan_card import PlanCard
        from trainwiz.tui.theme import UNICODE_MARKS

        if self._may("plan"):
            self.app.push_screen(PlanCard(self.folder, getattr(self.app, "marks", UNICODE_MARKS)))
