"""ImportCard: settings of other programs, pasted or in files, become a profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, Static, TextArea
from textual.worker import Worker, WorkerState, get_current_worker
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.importing.gather import free_name, import_together, save_import, texts_of_pasted
from trainwiz.core.importing.report import Imported
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.widgets.field_row import ActionButton, KeepRow
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.import_report import ABOUT, ImportReport, PasteBox
from trainwiz.tui.widgets.step_part import unforeseen_words

if TYPE_CHECKING:
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.plan_fields import Setting
    from trainwiz.tui.screens.plan_state import PlanState


# How the wizard takes an import: the profile that was kept of it fills in everything, as one that was always there.


def import_settings(state: PlanState, spec: Setting) -> ImportCard:
    """The window in which foreign settings are read."""

    return ImportCard(gives_way=len(state.request.overrides))


def with_import(name: str, request: PlanRequest) -> PlanRequest:
    """The request with a profile that was just imported. Values chosen before give way: what was imported counts."""
    return replace(request, profile=name, overrides={})


def giving_way_words(values: int) -> str:
    """What using it costs; empty for nothing."""
    if not values:
        return ""
    return trn(
        "Using it discards {n} value that you chose in the wizard.",
        "Using it discards {n} values that you chose in the wizard.",
        values,
    )


# ImportCard: settings of other programs, pasted or in files, become a profile. The report follows the text.

TITLE = mark("Import existing settings")
PAUSE_S = 0.15
"""A text that did not change for so long is read."""
LONGEST_MESSAGE = 400
ENDINGS = (".yaml", ".yml", ".json", ".jsonc", ".py", ".sh", ".bash", ".slurm", ".sbatch")
"""Files that may hold settings come first in the picker."""


class ImportCard(ModalScreen[Callable[[PlanRequest], PlanRequest] | None]):
    """Answers how the request takes the profile that was kept, or None. Nothing is kept before a button says so."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("import")]
    AUTO_FOCUS = "PasteBox"

    DEFAULT_CSS = """
    ImportCard { align: center middle; background: $background 60%; }
    ImportCard > Vertical {
        width: 108; max-width: 96%; height: 92%; background: $surface; border: round $accent; padding: 0 1;
    }
    ImportCard .title { height: 1; }
    ImportCard PasteBox { height: 25%; min-height: 3; border: none; padding: 0; background: $panel; color: $foreground; }
    ImportCard PasteBox .text-area--placeholder { color: $muted; }
    ImportCard VerticalScroll { height: 1fr; margin: 1 0; scrollbar-size: 1 1; }
    ImportCard VerticalScroll:focus { background: $background; }
    ImportCard KeepRow { display: none; }
    ImportCard.-read KeepRow { display: block; }
    ImportCard #problem { height: auto; max-height: 4; color: $error; }
    ImportCard #problem.-warning { color: $warning; }
    ImportCard.-low VerticalScroll { margin: 0; }
    """

    class Done(Message):
        """A text was read: an import, or why it is none; neither for an empty text."""

        def __init__(self, text: str, merged: Imported | None, findings: Sequence[Finding]) -> None:
            super().__init__()
            self.text = text
            self.merged = merged
            self.findings = tuple(findings)

    def __init__(self, gives_way: int = 0) -> None:
        """`gives_way`: how many values of the user's own the profile would take the place of."""
        super().__init__()
        self._gives_way = gives_way
        self._merged: Imported | None = None
        self._findings: tuple[Finding, ...] = ()
        self._read_text = ""
        self._pause: Timer | None = None
        self._wants_on = False

    @property
    def box(self) -> PasteBox:
        return self.query_one(PasteBox)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(tr(TITLE), "bold"), classes="title", markup=False)
            yield PasteBox(tr("Paste a text, or type the path of a file."))
            with VerticalScroll():
                yield ImportReport(cast("TrainwizApp", self.app).marks)
            yield KeepRow()
            yield Static("", id="problem", markup=False)
            yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("import")]

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self.set_class(self.size.height < 24, "-low")
        self.call_after_refresh(self._draw)

    # Reading.

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        """Read when the text rests; until then nothing of the former one can be used."""
        event.stop()
        self.box.is_done = self._wants_on = False
        self._say("")
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PAUSE_S, self._read)

    def _read(self) -> None:
        text = self.box.text
        self.run_worker(partial(self._work, text), thread=True, group="import", exclusive=True, exit_on_error=False)

    def _work(self, text: str) -> None:
        worker, merged = get_current_worker(), None
        findings: tuple[Finding, ...] = ()
        try:
            texts = texts_of_pasted(text)
            merged = import_together(texts) if texts else None
        except TrainwizError as error:
            findings = error.findings
        if not worker.is_cancelled:
            self.post_message(self.Done(text, merged, findings))

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._say(unforeseen_words(event.worker.error))

    @on(Done)
    def _take(self, event: Done) -> None:
        event.stop()
        if event.text != self.box.text:
            return
        self._read_text, self._merged, self._findings = event.text, event.merged, event.findings
        self.box.is_done = self._merged is not None
        self.set_class(self.box.is_done, "-read")
        if self._merged is not None:
            self.query_one(KeepRow).propose(free_name(self._merged))
            self._warn()
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self._draw()
        if self._wants_on:
            self._go_on()

    def _draw(self) -> None:
        self.query_one(ImportReport).show_import(self._merged, self._findings)

    def _warn(self) -> None:
        self._say(giving_way_words(self._gives_way) if self._merged is not None else "", warning=True)

    def _say(self, sentence: str, warning: bool = False) -> None:
        line = self.query_one("#problem", Static)
        line.set_class(warning, "-warning")
        line.update(Content(plain_text(sentence, LONGEST_MESSAGE)))
        line.display = bool(sentence)

    # Going on.

    @on(PasteBox.Refused)
    def _refused(self, event: PasteBox.Refused) -> None:
        event.stop()
        self._say(event.message)

    @on(PasteBox.GoOn)
    def _asked_on(self, event: PasteBox.GoOn) -> None:
        event.stop()
        self._wants_on = True
        if self.box.is_done:
            self._go_on()

    def _go_on(self) -> None:
        self._wants_on = False
        if self._merged is not None:
            self.query_one(KeepRow).focus_button()

    def action_press(self) -> None:
        if isinstance(self.focused, ActionButton):
            self._use()
        else:
            self._go_on()

    @on(Input.Submitted)
    @on(ActionButton.Pressed)
    def _pressed(self, event: Message) -> None:
        event.stop()
        self._use()

    @on(Input.Changed)
    def _named(self, event: Input.Changed) -> None:
        event.stop()
        self._warn()

    def _use(self) -> None:
        """Keep the profile, as the command does, and answer with it."""
        name = self.query_one(KeepRow).name_typed
        if self._merged is None or not self.box.is_done:
            return
        if not name:
            self._say(tr("Type a name."))
            return
        try:
            saved = save_import(self._merged, name)
        except TrainwizError as error:
            self._say(" ".join(finding.message for finding in error.findings))
            return
        words = tr("✓ Kept as the profile {name}: {file}", name=saved.name, file=saved.file)
        self.app.notify(plain_text(words, LONGEST_MESSAGE), markup=False)
        self.dismiss(partial(with_import, saved.name))

    # The other keys.

    def action_browse(self) -> None:
        from trainwiz.tui.widgets.file_picker import FilePicker

        picker = FilePicker(tr("A file with settings, a script or a launch command"), "", ENDINGS, with_folders=False)
        self.app.push_screen(picker, self._picked)

    def _picked(self, path: str | None) -> None:
        """The path stands above what is there, where paths are read."""
        if path is not None:
            self.box.put_path(path)
            self.box.focus()

    def action_scroll_report(self, pages: int) -> None:
        report = self.query_one(VerticalScroll)
        report.scroll_relative(y=pages * max(1, report.size.height - 1), animate=False)

    def action_help(self) -> None:
        from trainwiz.tui.widgets.frame import HelpCard

        parts = [(tr("What"), "\n".join(tr(line) for line in ABOUT))]
        self.app.push_screen(HelpCard(tr(TITLE), parts, self.key_rows()))

    def action_close(self) -> None:
        self.dismiss(None)
