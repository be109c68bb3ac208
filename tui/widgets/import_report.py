"""What became of each setting of an import; and the box into which it is pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea
from trainwiz.core.errors import Finding
from trainwiz.core.importing.gather import pasted_text
from trainwiz.core.importing.report import Imported, NotImportable
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import (
    dropped_by_reason,
    dropped_title,
    mapped_rows,
    mapped_title,
    part_words,
    renamed_rows,
    renamed_title,
    unknown_rows,
    unknown_title,
)
from trainwiz.tui.text import cells, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.lists import TextLines, hanging
from trainwiz.tui.widgets.plan_panel import finding_lines

# PasteBox: takes a paste of many lines, or a typed path or command. What is no text is refused and changes nothing.

LONGEST_WRAPPED = 20_000
"""Characters; wrapping a longer text takes so long that it is felt."""


class PasteBox(TextArea):
    """Enter ends a line, and asks the window to go on where the text is done."""

    class GoOn(Message):
        """Enter, at the end of the text."""

    class Refused(Message):
        """A paste that was not taken."""

        def __init__(self, message: str) -> None:
            super().__init__()
            self.message = message

    def __init__(self, placeholder: str) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=placeholder)
        self.cursor_blink = False
        self.is_done = False
        """What stands here was read: enter at its end goes on."""

    def insert_text(self, text: str) -> None:
        """As a paste does."""
        try:
            pasted_text(self.text + text)
            text = pasted_text(text)
        except NotImportable as error:
            self.post_message(self.Refused(" ".join(finding.message for finding in error.findings)))
            return
        self.soft_wrap = len(self.text) + len(text) <= LONGEST_WRAPPED
        result = self.replace(text, *self.selection)
        self.move_cursor(result.end_location)

    def put_path(self, path: str) -> None:
        """A line above the text: paths stand first."""
        self.insert(f"{path}\n", (0, 0))
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        # Here and nowhere else: the application would hand it on once more.
        event.prevent_default()
        event.stop()
        self.insert_text(event.text)

    async def _on_key(self, event: events.Key) -> None:
        is_end = event.key == "enter" and self.cursor_location == self.document.end
        goes_on = is_end and (self.is_done or self.document.line_count == 1)
        if goes_on and self.is_done:
            event.prevent_default()
            event.stop()
        else:
            # Of a paste that a terminal types key by key the end of the first line is no wish to go on: it is kept.
            await super()._on_key(event)
        if goes_on:
            self.post_message(self.GoOn())


# ImportReport: what became of each setting of an import, findings first; or why there is none; or what can be read.

INDENT = "  "
GAP = "  "
LONGEST_MESSAGE = 400
ABOUT = (
    mark("What can be read here:"),
    mark("an accelerate file or a DeepSpeed JSON, of any age"),
    mark("arguments of a Trainer: Python, YAML or JSON, transformers 4.x or 5.x"),
    mark("a launch command: accelerate launch, torchrun, deepspeed, python train.py"),
    mark("paths of such files, each on a line of its own; a text may follow them"),
    mark("Nothing is executed. You see the result before it is saved."),
)
BESIDE = 0.45
"""Of the width: settings that are longer have what became of them on a line beneath."""


class ImportReport(TextLines):
    """Lines that are laid out again for every width."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._marks = marks
        self._merged: Imported | None = None
        self._findings: tuple[Finding, ...] = ()

    def show_import(self, merged: Imported | None, findings: tuple[Finding, ...]) -> None:
        self._merged, self._findings = merged, findings
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.size.width
        if width and self._merged is not None:
            self.show(report_lines(self._merged, width, self._marks))
        elif width:
            self.show(refusal_lines(self._findings, width, self._marks) or about_lines(width, self._marks))


def about_lines(width: int, marks: Marks) -> list[Content]:
    """What can be read, while nothing was."""
    first, *kinds, last = (tr(line) for line in ABOUT)
    lines = [first, *(f"{INDENT}{marks.dot} {kind}" for kind in kinds), last]
    return [
        line
        for text in lines
        for line in hanging(Content.styled(text, "$muted"), width, 4 if text.startswith(INDENT) else 0)
    ]


def refusal_lines(findings: Sequence[Finding], width: int, marks: Marks) -> list[Content]:
    """A sentence for each text that cannot be imported."""
    said = [f"{marks.bad} {plain_text(finding.message, LONGEST_MESSAGE)}" for finding in findings]
    return [line for text in said for line in hanging(Content.styled(text, "$error"), width, 2)]


def report_lines(merged: Imported, width: int, marks: Marks) -> list[Content]:
    """Every line fits into `width` cells."""
    lines = hanging(Content.styled(tr(", ").join(map(part_words, merged.parts)), "bold"), width, 2)
    lines += hanging(Content.styled(f" {marks.dot} ".join(_titles(merged)), "$muted"), width, 2)
    for finding in merged.findings:
        lines += finding_lines(finding, width, marks)
    mapped = [
        ([f"{name} {value}".rstrip()], [f"{to} {set_to}", at]) for name, value, to, set_to, at in mapped_rows(merged)
    ]
    lines += _section(mapped_title(merged), mapped, width)
    lines += _section(renamed_title(merged), [([old], [new, at]) for old, new, at in renamed_rows(merged)], width)
    lines += _dropped(merged, width)
    unknown = [([f"{name} {value}".rstrip()], [at]) for name, value, at in unknown_rows(merged)]
    return [*lines, *_section(unknown_title(merged), unknown, width)]


def _titles(merged: Imported) -> list[str]:
    """What there is below, in figures."""
    titles = {
        mapped_title(merged): merged.mapped,
        renamed_title(merged): merged.renamed,
        dropped_title(merged): merged.dropped,
        unknown_title(merged): merged.unknown,
    }
    return [title for title, rows in titles.items() if rows]


def _section(title: str, rows: Sequence[tuple[list[str], list[str]]], width: int) -> Iterator[Content]:
    """Rows of (setting, what became of it), in two columns."""
    if not rows:
        return
    yield Content("")
    yield Content.styled(title, "bold")
    short = [cells(left) for (left,), _ in rows if cells(left) <= width * BESIDE]
    column = max(short, default=0)
    for (left,), (became, *at) in rows:
        right = Content.assemble(became, *((f"{GAP}{place}", "$muted") for place in at if place))
        if cells(left) <= column and cells(left) > 0:
            start = f"{INDENT}{pad(left, column)}{GAP}"
            yield from hanging(Content(start) + right, width, cells(start))
        else:
            yield from hanging(Content(f"{INDENT}{left}"), width, 4)
            yield from hanging(Content(f"{INDENT}{INDENT}") + right, width, 4)


def _dropped(merged: Imported, width: int) -> Iterator[Content]:
    """The settings under their reasons."""
    if not merged.dropped:
        return
    yield Content("")
    yield Content.styled(dropped_title(merged), "bold")
    for why, settings in dropped_by_reason(merged).items():
        yield from hanging(Content(f"{INDENT}{why}"), width, 2)
        yield from hanging(Content.styled(f"{INDENT}{INDENT}{settings}", "$muted"), width, 4)
