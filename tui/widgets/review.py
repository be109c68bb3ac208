"""Review: what will be written and what is in it, the exact command, where the run goes, and the buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, RenderResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import size
from trainwiz.tui.keys import bindings
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_state import PlanState, is_ready, start_obstacle
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from textual import events

LONGEST_PREVIEW = 400


class FileList(Widget, can_focus=True):
    """The files of a start with their sizes; up and down choose which one is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("files")]
    DEFAULT_CSS = """
    FileList { height: auto; padding: 0; }
    FileList:focus { background: $panel; }
    """

    def __init__(self, marks: Marks) -> None:
        super().__init__(id="files")
        self._marks = marks
        self._files: dict[str, str] = {}
        self.cursor = 0

    @property
    def current(self) -> str:
        """The text of the file under the cursor."""
        return list(self._files.values())[self.cursor] if self._files else ""

    def show(self, state: PlanState) -> None:
        self._files = dict(state.reading.files)
        self.cursor = min(self.cursor, max(0, len(self._files) - 1))
        self.refresh(layout=True)

    def render(self) -> RenderResult:
        if not self._files:
            return Content.styled("  nothing yet", "$muted")
        lines = []
        for index, (name, text) in enumerate(self._files.items()):
            here = index == self.cursor
            mark = self._marks.here if here else " "
            lines.append(
                Content.assemble(
                    (f"{mark} ", "$accent"),
                    (f"{plain_text(name, 30):<30}", "$foreground" if here else "$muted"),
                    (f"{size(len(text.encode())):>10}", "$muted"),
                )
            )
        return Content("\n").join(lines)

    def action_move_file(self, by: int) -> None:
        """Another file; beyond the first and the last one the focus leaves the list."""
        cursor = self.cursor + by
        if 0 <= cursor < len(self._files):
            self._set_cursor(cursor)
        elif by > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self._files):
            self._set_cursor(event.y)

    def _set_cursor(self, cursor: int) -> None:
        self.cursor = cursor
        self.refresh()
        review = next((node for node in self.ancestors if isinstance(node, Review)), None)
        if review is not None:
            review.show_file()


class Review(StepPart):
    """The last step below its fields."""

    DEFAULT_CSS = """
    Review { height: auto; }
    Review .heading { text-style: bold; color: $muted; margin: 1 0 0 0; height: 1; }
    Review #preview { height: 12; margin: 1 0 0 2; border-left: solid $line; padding: 0 1; scrollbar-size: 1 1; }
    Review #preview Static { width: auto; height: auto; color: $muted; }
    Review #command { height: auto; padding: 0 2; }
    Review #buttons { height: auto; margin: 1 0 0 2; }
    Review #keep { height: auto; margin: 0 0 0 2; }
    Review #verdict { height: auto; padding: 0 2; margin: 1 0 0 0; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks, id="review")
        self._marks = marks

    def compose(self) -> ComposeResult:
        yield Static("Start", classes="heading", markup=False)
        with Horizontal(id="buttons"):
            yield ActionButton("Start", "start")
            yield ActionButton("Start detached", "detached")
            yield ActionButton("Write only", "write")
        with Horizontal(id="keep"):
            yield ActionButton("Save as profile", "save")
        yield Static("", id="verdict", markup=False)
        yield Static("The same without a screen", classes="heading", markup=False)
        yield Static("", id="command", markup=False)
        yield Static("What will be written", classes="heading", markup=False)
        yield FileList(self._marks)
        preview = VerticalScroll(Static("", markup=False), id="preview")
        preview.can_focus = False
        yield preview

    def show(self, state: PlanState) -> None:
        """Draw the state."""
        obstacle = start_obstacle(state)
        reading = state.reading
        self.query_one("#button-start", ActionButton).show(state.busy or ("Cannot start" if obstacle else "Start"))
        self.query_one("#button-detached", ActionButton).display = not obstacle
        verdict = self.query_one("#verdict", Static)
        if state.problem or (obstacle and not state.busy):
            verdict.update(Content.styled(f"{self._marks.bad} {plain_text(state.problem or obstacle)}", "$error"))
        elif state.wanted_start and not state.busy:
            verdict.update(
                Content.styled(f"starts as soon as the plan is ready{self._marks.ellipsis} esc cancels", "$accent")
            )
        elif not is_ready(state):
            verdict.update(
                Content.styled(f"{reading.waits_for or 'updating the plan'} {self._marks.ellipsis}", "$muted")
            )
        else:
            verdict.update(
                Content.assemble(
                    ("goes to ", "$muted"), plain_text(reading.folder), ("   nothing is overwritten", "$muted")
                )
            )
        self.query_one("#command", Static).update(Content(plain_text(command_line(state.request))))
        files = self.query_one(FileList)
        before = files.current
        files.show(state)
        if files.current != before:
            self.show_file()

    def show_file(self) -> None:
        """The file under the cursor, as text."""
        lines = self.query_one(FileList).current.splitlines()
        shown = [plain_text(line, 400) for line in lines[:LONGEST_PREVIEW]]
        if len(lines) > LONGEST_PREVIEW:
            shown.append(f"{len(lines) - LONGEST_PREVIEW} more lines")
        self.query_one("#preview Static", Static).update(Content("\n".join(shown)))
        self.query_one("#preview", VerticalScroll).scroll_home(animate=False)
