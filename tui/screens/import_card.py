"""ImportCard: settings of other programs, pasted or in files, become a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static, TextArea
from textual.worker import Worker, WorkerState, get_current_worker
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.importing.gather import free_name, import_together, pasted_text, save_import, texts_of_pasted
from trainwiz.core.importing.report import Imported, NotImportable
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.plan_words import part_words, report_sections
from trainwiz.tui.text import aligned
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import KeyBar, Window, failure_words
from trainwiz.tui.widgets.lists import LinesWidget, Pressed, hanging
from trainwiz.tui.widgets.plan_panel import finding_lines

LONGEST_WRAPPED = 20_000
"""Characters; wrapping a longer text takes so long that it is felt."""


class PasteBox(TextArea):
    @dataclass
    class Refused(Message):
        """A paste that was not taken."""

        message: str

    def __init__(self, placeholder: str) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=placeholder)
        self.cursor_blink = False

    async def _on_paste(self, event: events.Paste) -> None:
        # Here and nowhere else: the application would hand it on once more.
        event.prevent_default()
        event.stop()
        try:
            pasted_text(self.text + event.text)
            text = pasted_text(event.text)
        except NotImportable as error:
            self.post_message(self.Refused(" ".join(finding.message for finding in error.findings)))
            return
        self.soft_wrap = len(self.text) + len(text) <= LONGEST_WRAPPED
        self.move_cursor(self.replace(text, *self.selection).end_location)


INDENT = "  "
ABOUT = (
    mark("Supported input:"),
    mark("an accelerate config or a DeepSpeed JSON, any version"),
    mark("Trainer arguments: Python, YAML or JSON, transformers 4.x or 5.x"),
    mark("a launch command: accelerate launch, torchrun, deepspeed, python train.py"),
    mark("paths of such files, one per line; text may follow them"),
    mark("Nothing is executed. You see the result before it is saved."),
)


class ImportReport(LinesWidget):
    """What became of a text, or why it cannot be read; before that, what can be."""

    DEFAULT_CSS = """
    ImportReport { height: auto; }
    """

    _merged: Imported | None = None
    _findings: tuple[Finding, ...] = ()

    def show(self, merged: Imported | None, findings: tuple[Finding, ...]) -> None:
        self._merged, self._findings = merged, findings
        self.refresh(layout=True)

    def lines_in(self, width: int) -> list[Content]:
        if self._merged is not None:
            return report_lines(self._merged, width)
        said = [line for finding in self._findings for line in finding_lines(finding, width)]
        return said or [piece for line in ABOUT for piece in hanging(Content.styled(tr(line), "$muted"), width, 2)]


def report_lines(merged: Imported, width: int) -> list[Content]:
    """Every line fits into `width` cells."""
    lines = hanging(Content.styled(tr(", ").join(map(part_words, merged.parts)), "bold"), width, 2)
    for finding in merged.findings:
        lines += finding_lines(finding, width)
    for title, rows in report_sections(merged):
        lines += [Content(""), Content.styled(title, "bold")]
        for row in aligned(rows):
            lines += hanging(Content(INDENT + "  ".join(row).rstrip()), width, 6)
    return lines


TITLE = mark("Import existing settings")
PAUSE_S = 0.15
"""A text that did not change for so long is read."""
LONGEST_MESSAGE = 400
ENDINGS = (".yaml", ".yml", ".json", ".jsonc", ".py", ".sh", ".bash", ".slurm", ".sbatch")
"""Files that may hold settings come first in the picker."""


class ImportCard(Window[Callable[[PlanRequest], PlanRequest]]):
    """Answers how the request takes the profile that was kept, or None. Nothing is kept before the button says so."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("import")]
    AUTO_FOCUS = "PasteBox"

    DEFAULT_CSS = """
    ImportCard > Vertical { width: 108; height: 92%; max-height: 92%; }
    ImportCard .title { height: 1; }
    ImportCard PasteBox { height: 25%; min-height: 3; border: none; padding: 0; background: $panel; color: $foreground; }
    ImportCard PasteBox .text-area--placeholder { color: $muted; }
    ImportCard VerticalScroll { height: 1fr; margin: 1 0; scrollbar-size: 1 1; }
    ImportCard VerticalScroll:focus { background: $background; }
    ImportCard #problem { max-height: 4; color: $error; }
    ImportCard #problem.-warning { color: $warning; }
    """

    def __init__(self, gives_way: int = 0) -> None:
        """`gives_way`: how many values of the user's own the profile would take the place of."""
        super().__init__()
        self._gives_way = gives_way
        self._merged: Imported | None = None
        self._read_text = ""
        self._pause: Timer | None = None

    @property
    def box(self) -> PasteBox:
        return self.query_one(PasteBox)

    def compose(self) -> ComposeResult:
        button = ActionButton("", "use")
        button.display = False
        with Vertical():
            yield Static(Content.styled(tr(TITLE), "bold"), classes="title", markup=False)
            yield PasteBox(tr("Paste text, or type a file path."))
            with VerticalScroll():
                yield ImportReport()
            yield button
            yield Static("", id="problem", markup=False)
            yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("import")]

    # Reading.

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        """Read when the text rests; until then nothing of the former one can be used."""
        event.stop()
        self._merged = None
        self._say("")
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PAUSE_S, self._read)

    def _read(self) -> None:
        work = partial(self._work, self.box.text)
        self.run_worker(work, thread=True, group="import", exclusive=True, exit_on_error=False)

    def _work(self, text: str) -> None:
        worker, merged = get_current_worker(), None
        findings: tuple[Finding, ...] = ()
        try:
            texts = texts_of_pasted(text)
            merged = import_together(texts) if texts else None
        except TrainwizError as error:
            findings = error.findings
        if not worker.is_cancelled:
            self.call_later(self._take, text, merged, findings)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._say(failure_words(event.worker.error))

    def _take(self, text: str, merged: Imported | None, findings: tuple[Finding, ...]) -> None:
        """A text was read: an import, or why it is none; neither for an empty text."""
        if text != self.box.text:
            return
        self._read_text, self._merged = text, merged
        button = self.query_one(ActionButton)
        button.display = merged is not None
        if merged is not None:
            button.show(tr("save as profile {name} and use it", name=plain_text(free_name(merged), 80)))
            cost = trn(
                "Using it discards {n} value chosen in the wizard.",
                "Using it discards {n} values chosen in the wizard.",
                self._gives_way,
            )
            self._say(cost if self._gives_way else "", warning=True)
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self.query_one(ImportReport).show(merged, findings)

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

    def action_press(self) -> None:
        if isinstance(self.focused, ActionButton):
            self._use()

    @on(Pressed)
    def _use(self) -> None:
        """Keep the profile, as the command does, and answer with it."""
        if self._merged is None:
            return
        try:
            saved = save_import(self._merged)
        except TrainwizError as error:
            self._say(failure_words(error))
            return
        words = tr("✓ Saved as profile {name}: {file}", name=saved.name, file=saved.file)
        self.app.notify(plain_text(words, LONGEST_MESSAGE), markup=False)
        # Values chosen before give way: what was imported counts.
        self.dismiss(lambda request: replace(request, profile=saved.name, overrides={}))

    # The other keys.

    def action_browse(self) -> None:
        from trainwiz.tui.widgets.file_picker import FilePicker

        picker = FilePicker(tr("A file with settings, a script or a launch command"), "", ENDINGS)
        self.app.push_screen(picker, self._picked)

    def _picked(self, path: str | None) -> None:
        """The path stands above what is there, where paths are read."""
        if path is not None:
            self.box.insert(f"{path}\n", (0, 0))
            self.box.move_cursor(self.box.document.end)
            self.box.focus()

    def action_scroll_report(self, pages: int) -> None:
        report = self.query_one(VerticalScroll)
        report.scroll_relative(y=pages * max(1, report.size.height - 1), animate=False)
