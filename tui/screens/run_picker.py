"""RunPicker: what is running and recent, when `trainwiz monitor` was not told which."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.monitor import name_to_give, row_of
from trainwiz.tui.keys import bindings, keys_of
from trainwiz.tui.text import aligned, cut
from trainwiz.tui.widgets.frame import HelpCard, KeyBar, failure_words
from trainwiz.tui.widgets.run_header import status_content

if TYPE_CHECKING:
    from trainwiz.core.telemetry.discovery import Found
    from trainwiz.core.telemetry.target import Target

REFRESH_S = 2.0
MOST_NAME = 48
STATUS_WIDTH = 10
ABOUT = mark(
    "Runs of trainwiz, and training by other tools that was found on this machine. Running ones come first, then the "
    "newest. Watching changes nothing. To monitor something else, pass its folder: trainwiz monitor FOLDER."
)


class RunPicker(Screen[None]):
    """Enter watches: `watch` makes the screen for a target. `clock` gives Unix time in seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("picker")]
    AUTO_FOCUS = "OptionList"

    DEFAULT_CSS = """
    RunPicker { layout: vertical; }
    RunPicker #title { height: 2; padding: 0 1; }
    RunPicker OptionList, RunPicker OptionList:focus { height: 1fr; border: none; background: $background; padding: 0; }
    """

    def __init__(
        self,
        watch: Callable[[Target], Screen[Any]],
        *,
        find: Callable[[], Sequence[Found]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._watch = watch
        self._find = find
        self._clock = clock
        self._found: Sequence[Found] = ()
        self._looking = False

    def compose(self) -> ComposeResult:
        yield Static(tr("Searching for running training."), id="title", markup=False)
        options: OptionList = OptionList(markup=False)
        yield options
        yield KeyBar(lambda: [*keys_of("picker"), *keys_of("app")])

    def on_mount(self) -> None:
        self.call_after_refresh(self._look)
        self.set_interval(REFRESH_S, self._look)

    def _look(self) -> None:
        if not self._looking and self.is_current:
            self._looking = True
            self._find_targets()

    @work(thread=True, group="find", exit_on_error=False)
    def _find_targets(self) -> None:
        # Loaded here, after the first frame.
        from trainwiz.core.telemetry.discovery import list_targets

        try:
            found = (self._find or list_targets)()
        finally:
            self._looking = False
        self.app.call_from_thread(self._show, found)

    def _show(self, found: Sequence[Found]) -> None:
        if not self.is_attached:
            return
        options, marked = self.query_one(OptionList), self._marked
        self._found = tuple(found)
        self.query_one("#title", Static).update(_title(len(found), sum(target.runs_now for target in found)))
        options.clear_options()
        options.add_options([Option(line) for line in self._lines()])
        if found:
            # The mark stays on what it was on.
            names = [name_to_give(target) for target in found]
            before = name_to_give(marked) if marked else ""
            options.highlighted = names.index(before) if before in names else 0

    @property
    def _marked(self) -> Found | None:
        index = self.query_one(OptionList).highlighted
        return self._found[index] if index is not None and index < len(self._found) else None

    def _lines(self) -> list[Content]:
        """One line an entry, in columns that are as wide as they must be and cut at the edge of the screen."""
        cells, room = [self._cells(found) for found in self._found], max(20, self.size.width - 2)
        return [
            Content.assemble(
                status_content(found.status).truncate(STATUS_WIDTH, pad=True), " ", "  ".join(row)
            ).truncate(room)
            for found, row in zip(self._found, aligned(cells) if cells else [], strict=True)
        ]

    def _cells(self, found: Found) -> list[str]:
        """The short name first; what is given to the command stands at the end."""
        to_give, _, step, loss, what, began = row_of(found, self._clock())
        name = plain_text(found.target.name)
        step = step if step == "-" else tr("step {step}", step=step)
        loss = loss if loss == "-" else tr("loss {loss}", loss=loss)
        where = "" if to_give == name or found.target.kind == "process" else to_give
        return [cut(name, MOST_NAME), step, loss, began, what, where]

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR and event.worker.error is not None:
            self.query_one("#title", Static).update(failure_words(event.worker.error))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        if self._marked is None:
            return
        try:
            screen = self._watch(self._marked.target)
        except TrainwizError as error:
            self.notify(failure_words(error), severity="error", markup=False)
            return
        self.app.push_screen(screen)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._found:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._found)

    def action_help(self) -> None:
        self.app.push_screen(
            HelpCard(tr("What can be monitored"), [(tr("The list"), tr(ABOUT))], [*keys_of("picker"), *keys_of("app")])
        )


def _title(count: int, running: int) -> str:
    if not count:
        return tr("There is nothing left to monitor.")
    if not running:
        return tr("Nothing is running, {ended} ended. Which one?", ended=count)
    return tr("{running} running, {ended} ended. Which one?", running=running, ended=count - running)
