"""Review: the buttons, where the run goes, what is not the profile's, the exact command, and what will be written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.screens.plan_baseline import Baseline, profile_request
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_state import PlanState, is_ready, start_obstacle
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.difference_list import DifferenceList
from trainwiz.tui.widgets.file_list import FileList, FileText
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwiz.core.plan.request import PlanRequest
    from trainwiz.tui.screens.plan_reading import PlanReading

BUTTONS = {
    "start": mark("Start"),
    "detached": mark("Start detached"),
    "write": mark("Write only"),
    "save": mark("Save as my profile"),
}
BUSY_WORDS = {"starting": mark("starting"), "writing": mark("writing")}


class Review(StepPart):
    """The last step below its fields. What the profile alone would be is worked out in a thread."""

    DEFAULT_CSS = """
    Review { height: auto; layout: vertical; }
    Review .heading { text-style: bold; color: $muted; margin: 1 0 0 0; height: 1; }
    Review .text { height: auto; padding: 0 2; }
    Review .buttons { height: auto; margin: 0 0 0 2; }
    Review #buttons { margin: 1 0 0 2; }
    """

    class Compared(Message):
        """What the profile alone would be."""

        def __init__(self, baseline: Baseline) -> None:
            super().__init__()
            self.baseline = baseline

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks, id="review")
        self._state: PlanState | None = None
        self._baseline: Baseline | None = None
        self._asked: tuple[PlanRequest, str] | None = None
        self._is_comparing = False
        self._file: tuple[str, str | None] = ("", None)

    def compose(self) -> ComposeResult:
        labels = {action: tr(label) for action, label in BUTTONS.items()}
        yield Static(tr("Start"), classes="heading", markup=False)
        with Horizontal(id="buttons", classes="buttons"):
            yield ActionButton(labels["start"], "start")
            yield ActionButton(labels["detached"], "detached")
        with Horizontal(classes="buttons"):
            yield ActionButton(labels["write"], "write")
            yield ActionButton(labels["save"], "save")
        yield Static("", id="verdict", classes="text", markup=False)
        yield Static("", id="differences-title", classes="heading", markup=False)
        yield Static("", id="differences-note", classes="text", markup=False)
        yield DifferenceList(self.marks)
        yield Static(tr("The same without a screen (c copies it)"), classes="heading", markup=False)
        yield Static("", id="command", classes="text", markup=False)
        yield Static(tr("What will be written"), classes="heading", markup=False)
        yield FileList(self.marks)
        yield FileText(id="preview")

    def show(self, state: PlanState) -> None:
        """Draw the state; a comparison that does not belong to it any more is asked for again."""
        self._state = state
        self._show_buttons(state)
        self.query_one("#verdict", Static).update(self._verdict(state))
        self.query_one("#command", Static).update(Content(plain_text(command_line(state.request))))
        self._compare(state)
        self._show_comparison(state)

    def _show_buttons(self, state: PlanState) -> None:
        obstacle = "" if state.busy else start_obstacle(state)
        label = tr(BUSY_WORDS.get(state.busy, state.busy)) if state.busy else tr("Start")
        reason = f"{self.marks.bad} {plain_text(obstacle)}" if obstacle else ""
        self.query_one("#button-start", ActionButton).show(tr("Cannot start") if obstacle else label, reason)
        self.query_one("#button-detached", ActionButton).display = not obstacle

    def _verdict(self, state: PlanState) -> Content:
        """Why the last start failed, or what a start waits for, or where it goes."""
        if state.problem and state.problem != start_obstacle(state):
            return Content.styled(f"{self.marks.bad} {plain_text(state.problem)}", "$error")
        if state.wanted_start and not state.busy:
            return Content.styled(tr("starts as soon as the plan is ready; esc cancels"), "$accent")
        if not is_ready(state):
            if _is_without_plan(state):
                # Nothing is on its way: the button says why.
                return Content("")
            waits_for = tr(state.reading.waits_for) if state.reading.waits_for else tr("updating the plan")
            return Content.styled(f"{waits_for} {self.marks.ellipsis}", "$muted")
        where = tr("Goes to {folder}; nothing is overwritten.", folder=plain_text(state.reading.folder))
        return Content.styled(where, "$muted")

    # What differs from the profile.

    def _compare(self, state: PlanState) -> None:
        """Ask what the profile alone would be, once for each profile, machine and folder; never while it is typed."""
        if not is_ready(state) or not state.request.overrides:
            return
        wanted = (profile_request(state.request), state.reading.folder)
        reader = cast("PlanReading", self.screen).reader
        # One at a time: it may read the profile's data, and the folder is another one at every key typed there.
        if wanted != self._asked and not self._is_comparing and reader is not None:
            self._asked, self._is_comparing = wanted, True
            work = partial(self._work_compare, reader.profile_alone, *wanted)
            self.run_worker(work, thread=True, group="compare", exit_on_error=False)

    def _work_compare(self, alone: Callable[[PlanRequest, str], Baseline], request: PlanRequest, folder: str) -> None:
        self.post_message(self.Compared(alone(request, folder)))

    def failed(self, sentence: str) -> None:
        """Said in its place; asked again when the profile, the machine or the folder is another."""
        if self._asked is not None:
            request, folder = self._asked
            self.post_message(self.Compared(Baseline(request, folder, problem=sentence)))

    @on(Compared)
    def _take(self, event: Compared) -> None:
        event.stop()
        self._is_comparing = False
        self._baseline = event.baseline
        if self._state is not None:
            # What was asked for meanwhile.
            self._compare(self._state)
            self._show_comparison(self._state)

    def _show_comparison(self, state: PlanState) -> None:
        baseline = self._fitting(state)
        differences = baseline.differences(state.plan) if baseline is not None and state.plan is not None else ()
        title = (
            tr("Changes from {profile}", profile=plain_text(state.request.profile or ""))
            if state.request.profile
            else tr("What is not as trainwiz would choose it")
        )
        heading = self.query_one("#differences-title", Static)
        heading.update(Content(title))
        heading.display = not _is_without_plan(state)
        note = self.query_one("#differences-note", Static)
        note.update(Content.styled(self._note(state, baseline, bool(differences)), "$muted"))
        note.display = heading.display and not differences
        self.query_one(DifferenceList).show(differences)
        files = self.query_one(FileList)
        files.show(state.reading.files, baseline.files if baseline is not None else None)
        self._show_file()

    def _fitting(self, state: PlanState) -> Baseline | None:
        """The comparison, where it is one with the profile of the state."""
        found = self._baseline
        if found is None or not state.request.overrides or found.request != profile_request(state.request):
            return None
        return found

    def _note(self, state: PlanState, baseline: Baseline | None, differs: bool) -> str:
        if differs:
            return ""
        if not state.request.overrides:
            return tr("Nothing: every value is the profile's, or follows from it.")
        if baseline is None:
            return tr("comparing with the profile") + f" {self.marks.ellipsis}"
        if baseline.problem:
            return tr("The profile alone cannot be planned: {reason}", reason=plain_text(baseline.problem))
        return tr("Nothing: your values are the ones that it has anyway.")

    @on(FileList.Moved)
    def _moved(self, event: FileList.Moved) -> None:
        event.stop()
        self._show_file()

    @on(FileList.Scrolled)
    def _scrolled(self, event: FileList.Scrolled) -> None:
        event.stop()
        self.query_one(FileText).scroll_pages(event.pages)

    def _show_file(self) -> None:
        """The file under the cursor, as text."""
        current = self.query_one(FileList).current
        if current != self._file:
            self._file = current
            self.query_one(FileText).show(*current)


def _is_without_plan(state: PlanState) -> bool:
    """There is none and none is being made."""
    return state.plan is None and not state.updating and not state.reading.waits_for
