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
from trainwiz.tui.text import cells, cut, pad
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.frame import HelpCard, KeyBar
from trainwiz.tui.widgets.run_header import STATUS_STYLES, status_mark, status_word

if TYPE_CHECKING:
    from trainwiz.core.telemetry.discovery import Found
    from trainwiz.core.telemetry.target import Target

REFRESH_S = 2.0
MOST_NAME = 48
STATUS_WIDTH = 8
ABOUT = mark(
    "Runs of trainwiz, and trainings of other tools that were found on this machine. What runs comes first, then the "
    "newest. Watching changes nothing. To watch something else, give its folder: trainwiz monitor FOLDER."
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
        yield Static(tr("Looking for what is running."), id="title", markup=False)
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
        options = self.query_one(OptionList)
        marked = self._marked
        self._found = tuple(found)
        running = sum(one.runs_now for one in found)
        self.query_one("#title", Static).update(_title(len(found), running))
        options.clear_options()
        options.add_options([Option(line) for line in self._lines()])
        names = [name_to_give(one) for one in found]
        if found:
            options.highlighted = names.index(name_to_give(marked)) if marked and name_to_give(marked) in names else 0

    @property
    def _marked(self) -> Found | None:
        index = self.query_one(OptionList).highlighted
        return self._found[index] if index is not None and index < len(self._found) else None

    def _lines(self) -> list[Content]:
        """One line an entry, in columns that are as wide as they must be and cut at the edge of the screen."""
        rows = [self._cells(found) for found in self._found]
        name_width = min(MOST_NAME, max((cells(row[0]) for row in rows), default=0))
        figures = [_figures(step, loss) for _, _, step, loss, _, _ in rows]
        figure_width = max(map(cells, figures), default=0)
        width = max(20, self.size.width - 2)
        return [
            self._line(row, pad(cut(row[0], name_width), name_width), pad(text, figure_width)).truncate(width)
            for row, text in zip(rows, figures, strict=True)
        ]

    def _cells(self, found: Found) -> tuple[str, ...]:
        """As in the list of the command, with the short name; what is given to the command stands beside what it is."""
        to_give, _, step, loss, what, began = row_of(found, self._clock())
        name = plain_text(found.target.name)
        where = to_give if to_give != name and found.target.kind != "process" else "-"
        beside = "  ".join(part for part in (what, where) if part != "-") or "-"
        return name, found.status, step, loss, beside, began

    def _line(self, row: tuple[str, ...], name: str, figures: str) -> Content:
        _, status, _, _, what, began = row
        sign = status_mark(status, getattr(self.app, "marks", UNICODE_MARKS))
        first = Content.styled(f"{sign} {pad(status_word(status), STATUS_WIDTH)}", STATUS_STYLES.get(status, "$muted"))
        more = "  ".join(part for part in (began, what) if part != "-")
        return Content.assemble(first, f" {name}  {figures}  ", (more, "$muted"))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR:
            error = event.worker.error
            sentence = str(error) if isinstance(error, TrainwizError) else f"{type(error).__name__}: {error}"
            self.query_one("#title", Static).update(plain_text(sentence, 300))

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
            self.notify(plain_text(error, 300), severity="error", markup=False)
            return
        self.app.push_screen(screen)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._found:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._found)

    def action_help(self) -> None:
        self.app.push_screen(
            HelpCard(tr("What can be watched"), [(tr("The list"), tr(ABOUT))], [*keys_of("picker"), *keys_of("app")])
        )


def _figures(step: str, loss: str) -> str:
    parts = [] if step == "-" else [tr("step {step}", step=step)]
    return "  ".join(parts if loss == "-" else [*parts, tr("loss {loss}", loss=loss)])


def _title(count: int, running: int) -> str:
    if not count:
        return tr("There is nothing to watch any more.")
    if not running:
        return tr("Nothing is running, {ended} ended. Which one?", ended=count)
    return tr("{running} running, {ended} ended. Which one?", running=running, ended=count - running)
