"""Review: the buttons, where the run goes, what is not the profile's, the command, and what will be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Collapsible, Static
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_fields import word_for
from trainwiz.tui.screens.plan_state import FIRST_SOURCE, SOURCES, PlanState, is_ready, start_obstacle
from trainwiz.tui.text import cells, cut, pad, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.step_form import LinesPart, StepPart

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
        self._views = {}
        for name, text in self._files.items():
            shown = Static(file_content(text), markup=False)
            view = Collapsible(
                VerticalScroll(shown),
                title=_title(name, text),
                collapsed_symbol=marks.more,
                expanded_symbol=marks.menu,
            )
            self._views[name] = view, shown
            yield view
        if not self._files:
            yield Static(Content.styled(tr("nothing yet"), "$muted"), markup=False)

    def show(self, files: Mapping[str, str]) -> None:
        """Of the same names only the texts change: what is open stays open."""
        before, self._files = self._files, files
        if list(before) != list(files):
            self._views = {}
            self.refresh(recompose=True)
        # A text that came while the views were being made is in them.
        for name, (view, shown) in self._views.items():
            if files[name] != before[name]:
                view.title = _title(name, files[name])
                shown.update(file_content(files[name]))


def _title(name: str, text: str) -> str:
    """Name and size; the names are those that trainwiz gives, so none is markup."""
    return f"{pad(name, NAME_WIDTH)}{pad(size(len(text.encode())), SIZE_WIDTH, right=True)}"


def file_content(text: str) -> Content:
    lines = text.splitlines()
    shown = [Content.styled(plain_text(line, LONGEST_LINE), "$muted") for line in lines[:LONGEST_PREVIEW]]
    more = len(lines) - len(shown)
    if more:
        shown.append(Content.styled(trn("{n} more line", "{n} more lines", more, n=f"{more:,}"), "$muted"))
    return Content("\n").join(shown)


WIDEST_KEY = 36
LONGEST_VALUE = 60


def change_words(theirs: str, yours: str, room: int) -> str:
    """ "theirs -> yours" in at most `room` cells; each keeps half of them before the other is cut."""
    theirs, yours = plain_text(theirs, LONGEST_VALUE), plain_text(yours, LONGEST_VALUE)
    both = room - cells(marks.arrow) - 2
    theirs = cut(theirs, max(both // 2, both - cells(yours)), marks.ellipsis)
    return cut(f"{theirs} {marks.arrow} {yours}", room, marks.ellipsis)


Change = tuple[str, Any, Any]
"""Key, the profile's value (None: it leaves it to trainwiz), and the one that the user chose."""


def changed_values(state: PlanState, width: int, is_small: bool) -> list[Content]:
    """What the user chose and the profile has otherwise."""
    values = state.reading.profile_values
    found = [(key, profile_value(values, key), yours) for key, yours in state.request.overrides.items()]
    nothing = Content.styled("  " + tr("None: no value of the profile was changed."), "$muted")
    return change_lines([change for change in found if change[1] != change[2]], width) or [nothing]


def profile_value(values: Mapping[str, Any], key: str) -> Any:
    """What a profile says of a key; its sources are one list."""
    section, _, name = key.rpartition(".")
    sources = values.get(SOURCES)
    if sources and section == FIRST_SOURCE.rstrip("."):
        return sources[0].get(name)
    return values.get(key)


def change_lines(changes: Sequence[Change], width: int) -> list[Content]:
    """One line for each: key, the profile's value, yours."""
    column = min([WIDEST_KEY, width // 2 - 3, max((cells(key) for key, _, _ in changes), default=0)])
    lines = []
    for key, theirs, yours in changes:
        name = pad(cut(plain_text(key), column, marks.ellipsis), column)
        before = tr("auto") if theirs is None else word_for(key, theirs) or tr("not set")
        words = change_words(before, word_for(key, yours) or tr("not set"), width - column - 5)
        lines.append(Content.assemble("  ", (f"{name}  ", "$muted"), words))
    return lines


BUTTONS = {
    "start": mark("Start"),
    "detached": mark("Start detached"),
    "write": mark("Write only"),
    "save": mark("Save as my profile"),
}
UPDATING = mark("updating the plan")


class Review(StepPart):
    """The last step below its fields."""

    DEFAULT_CSS = """
    Review { height: auto; layout: vertical; }
    Review .heading { text-style: bold; color: $muted; margin: 1 0 0 0; height: 1; }
    Review .text { height: auto; padding: 0 2; }
    Review .buttons { height: auto; margin: 0 0 0 2; }
    Review #buttons { margin: 1 0 0 2; }
    """

    def __init__(self) -> None:
        super().__init__(id="review")

    def compose(self) -> ComposeResult:
        heading = partial(Static, classes="heading", markup=False)
        text = partial(Static, "", classes="text", markup=False)
        start, detached, write, save = (ActionButton(tr(label), action) for action, label in BUTTONS.items())
        yield heading(tr("Start"))
        yield Horizontal(start, detached, id="buttons", classes="buttons")
        yield Horizontal(write, save, classes="buttons")
        yield text(id="verdict")
        yield heading(id="changes-title")
        yield LinesPart(changed_values)
        yield heading(tr("Command-line equivalent (press c to copy)"))
        yield text(id="command")
        yield heading(tr("Files to write"))
        yield FilesView()

    def show(self, state: PlanState) -> None:
        obstacle = "" if state.busy else start_obstacle(state)
        label = tr("Cannot start") if obstacle else tr(state.busy or BUTTONS["start"])
        self.query_one("#button-start", ActionButton).show(label)
        self.query_one("#button-detached", ActionButton).display = not obstacle
        self.query_one("#verdict", Static).update(Content.styled(*_verdict(state, obstacle)))
        self.query_one("#command", Static).update(Content(plain_text(command_line(state.request))))
        profile = plain_text(state.request.profile) if state.request.profile else tr("the choices of trainwiz")
        self.query_one("#changes-title", Static).update(Content(tr("Changes from {profile}", profile=profile)))
        if is_ready(state):
            # Else what was read may be of another profile.
            self.query_one(LinesPart).show(state)
        self.query_one(FilesView).show(state.reading.files)


def _verdict(state: PlanState, obstacle: str) -> tuple[str, str]:
    """(words, colour): why the last start failed, why none can be, what it waits for, or where it goes."""
    if problem := state.problem or obstacle:
        return f"{marks.bad} {plain_text(problem)}", "$error"
    if state.wanted_start and not state.busy:
        return tr("starts when the plan is ready; esc cancels"), "$accent"
    if is_ready(state):
        return tr("Writes to {folder}; nothing is overwritten.", folder=plain_text(state.reading.folder)), "$muted"
    return f"{tr(state.reading.waits_for or UPDATING)} {marks.ellipsis}", "$muted"
