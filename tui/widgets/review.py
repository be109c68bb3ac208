"""Review: the buttons, where the run goes, what is not the profile's, the command, and what will be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Collapsible, Static
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_fields import word_for
from trainwiz.tui.screens.plan_maker import Baseline, profile_request
from trainwiz.tui.screens.plan_state import PlanState, is_ready, start_obstacle
from trainwiz.tui.text import cells, cut, pad, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.lists import LinesWidget
from trainwiz.tui.widgets.step_form import StepPart

if TYPE_CHECKING:
    from trainwiz.core.config.keys import ConfigDifference
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.tui.screens.plan import PlanScreen


LONGEST_PREVIEW = 400
LONGEST_LINE = 400
NAME_WIDTH, SIZE_WIDTH = 18, 10


class FilesView(Vertical):
    """Every file that would be written: its name and size, which open to its text."""

    DEFAULT_CSS = """
    FilesView { height: auto; padding: 0 0 0 1; }
    FilesView CollapsibleTitle:focus { text-style: bold; }
    FilesView Collapsible { background: $background; border: none; padding: 0; }
    FilesView Collapsible:focus-within { background-tint: $background 0%; }
    FilesView Contents { padding: 0 0 1 2; }
    FilesView VerticalScroll { height: auto; max-height: 12; border-left: solid $line; padding: 0 1; scrollbar-size: 1 1; }
    FilesView VerticalScroll:focus { border-left: solid $accent; }
    FilesView VerticalScroll Static { width: auto; height: auto; color: $muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="files")
        self._files: Mapping[str, str] = {}
        self._views: dict[str, tuple[Collapsible, Static]] = {}

    def compose(self) -> ComposeResult:
        self._views = {name: _file_view(name, text) for name, text in self._files.items()}
        yield from (view for view, _ in self._views.values())
        if not self._files:
            yield Static(Content.styled(tr("nothing yet"), "$muted"), markup=False)

    def show(self, files: Mapping[str, str]) -> None:
        """Of the same names only the texts change: what is open stays open."""
        before, self._files = self._files, files
        if list(before) != list(files):
            self._views = {}
            self.refresh(recompose=True)
            return
        # A text that came while the views were being made is in them.
        for name, (view, shown) in self._views.items():
            if files[name] != before[name]:
                view.title = _title(name, files[name])
                shown.update(file_content(files[name]))


def _file_view(name: str, text: str) -> tuple[Collapsible, Static]:
    shown = Static(file_content(text), markup=False)
    title = _title(name, text)
    return Collapsible(
        VerticalScroll(shown), title=title, collapsed_symbol=marks.more, expanded_symbol=marks.menu
    ), shown


def _title(name: str, text: str) -> Content:
    return Content(f"{pad(plain_text(name), NAME_WIDTH)}{pad(size(len(text.encode())), SIZE_WIDTH, right=True)}")


def file_content(text: str) -> Content:
    lines = text.splitlines()
    shown = [Content.styled(plain_text(line, LONGEST_LINE), "$muted") for line in lines[:LONGEST_PREVIEW]]
    more = len(lines) - len(shown)
    if more:
        shown.append(Content.styled(trn("{n} more line", "{n} more lines", more, n=f"{more:,}"), "$muted"))
    return Content("\n").join(shown)


WIDEST_KEY = 36
LONGEST_VALUE = 60


def value_words(key: str, value: Any) -> str:
    """A value as the fields write it; lists of sources by their names."""
    if value is None or value in ([], {}, ""):
        return tr("not set")
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return ", ".join(str(item.get("name", item)) for item in value)
    return word_for(key, value)


def change_words(theirs: str, yours: str, room: int) -> str:
    """ "theirs -> yours" in at most `room` cells; each keeps half of them before the other is cut."""
    theirs, yours = plain_text(theirs, LONGEST_VALUE), plain_text(yours, LONGEST_VALUE)
    both = room - cells(marks.arrow) - 2
    for_theirs = max(both // 2, both - cells(yours))
    theirs = cut(theirs, for_theirs, marks.ellipsis)
    return cut(f"{theirs} {marks.arrow} {cut(yours, both - cells(theirs), marks.ellipsis)}", room, marks.ellipsis)


def difference_lines(differences: tuple[ConfigDifference, ...], width: int) -> list[Content]:
    """One line for each: key, the profile's value, yours, who chose it."""
    key_width = min(max(cells(one.key) for one in differences), WIDEST_KEY, max(8, width // 2 - 3))
    lines = []
    for one in differences:
        mine = one.chosen_by.origin == "you"
        origin = tr("you") if mine else tr("derived")
        room = max(4, width - key_width - 7 - cells(origin))
        text = change_words(value_words(one.key, one.theirs), value_words(one.key, one.yours), room)
        lines.append(
            Content.assemble(
                "  ",
                (pad(cut(plain_text(one.key), key_width, marks.ellipsis), key_width) + "  ", "$muted"),
                (pad(text, room), "$foreground"),
                (f" {marks.changed if mine else ' '} {origin}", "$accent" if mine else "$muted"),
            )
        )
    return lines


class DifferenceList(LinesWidget):
    DEFAULT_CSS = """
    DifferenceList { height: auto; }
    """

    _differences: tuple[ConfigDifference, ...] = ()

    def show(self, differences: tuple[ConfigDifference, ...]) -> None:
        self.display = bool(differences)
        if differences != self._differences:
            self._differences = differences
            self.refresh(layout=True)

    def lines_in(self, width: int) -> list[Content]:
        return difference_lines(self._differences, width) if self._differences else []


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

    def __init__(self) -> None:
        super().__init__(id="review")
        self._baseline: Baseline | None = None
        self._asked: PlanRequest | None = None
        self._is_comparing = False

    def compose(self) -> ComposeResult:
        yield Static(tr("Start"), classes="heading", markup=False)
        start, detached, write, save = (ActionButton(tr(label), action) for action, label in BUTTONS.items())
        yield Horizontal(start, detached, id="buttons", classes="buttons")
        yield Horizontal(write, save, classes="buttons")
        yield Static("", id="verdict", classes="text", markup=False)
        yield Static("", id="differences-title", classes="heading", markup=False)
        yield Static("", id="differences-note", classes="text", markup=False)
        yield DifferenceList()
        yield Static(tr("Command-line equivalent (press c to copy)"), classes="heading", markup=False)
        yield Static("", id="command", classes="text", markup=False)
        yield Static(tr("Files to write"), classes="heading", markup=False)
        yield FilesView()

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
        reason = f"{marks.bad} {plain_text(obstacle)}" if obstacle else ""
        self.query_one("#button-start", ActionButton).show(tr("Cannot start") if obstacle else label, reason)
        self.query_one("#button-detached", ActionButton).display = not obstacle

    def _verdict(self, state: PlanState) -> Content:
        """Why the last start failed, or what a start waits for, or where it goes."""
        if state.problem and state.problem != start_obstacle(state):
            return Content.styled(f"{marks.bad} {plain_text(state.problem)}", "$error")
        if state.wanted_start and not state.busy:
            return Content.styled(tr("starts when the plan is ready; esc cancels"), "$accent")
        if not is_ready(state):
            if _is_without_plan(state):
                # Nothing is on its way: the button says why.
                return Content("")
            waits_for = tr(state.reading.waits_for) if state.reading.waits_for else tr("updating the plan")
            return Content.styled(f"{waits_for} {marks.ellipsis}", "$muted")
        where = tr("Writes to {folder}; nothing is overwritten.", folder=plain_text(state.reading.folder))
        return Content.styled(where, "$muted")

    # What differs from the profile.

    def _compare(self, state: PlanState) -> None:
        """Ask what the profile alone would be, once for each profile, machine and folder."""
        if not is_ready(state) or not state.request.overrides:
            return
        wanted = profile_request(state.request)
        reader = cast("PlanScreen", self.screen).reader
        # One at a time: it may read the profile's data, and the folder is another one at every key typed there.
        if wanted != self._asked and not self._is_comparing and reader is not None:
            self._asked, self._is_comparing = wanted, True
            alone = reader.profile_alone
            work = lambda: self.call_later(self._take, alone(wanted))  # noqa: E731
            self.run_worker(work, thread=True, group="compare", exit_on_error=False)

    def failed(self, sentence: str) -> None:
        """Said in its place; asked again when the profile, the machine or the folder is another."""
        if self._asked is not None:
            self._take(Baseline(self._asked, problem=sentence))

    def _take(self, baseline: Baseline) -> None:
        self._is_comparing = False
        self._baseline = baseline
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
            else tr("Changes from the choices of trainwiz")
        )
        heading = self.query_one("#differences-title", Static)
        heading.update(Content(title))
        heading.display = not _is_without_plan(state)
        note = self.query_one("#differences-note", Static)
        note.update(Content.styled(self._note(state, baseline, bool(differences)), "$muted"))
        note.display = heading.display and not differences
        self.query_one(DifferenceList).show(differences)
        self.query_one(FilesView).show(state.reading.files)

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
            return tr("None: no value of the profile was changed.")
        if baseline is None:
            return tr("comparing with the profile") + f" {marks.ellipsis}"
        if baseline.problem:
            return tr("Can't plan the profile alone: {reason}", reason=plain_text(baseline.problem))
        return tr("None: your values are the same as the ones it already has.")


def _is_without_plan(state: PlanState) -> bool:
    """There is none and none is being made."""
    return state.plan is None and not state.updating and not state.reading.waits_for
