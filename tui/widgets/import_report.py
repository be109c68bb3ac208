"""ImportReport: what became of each setting of an import, findings first; or why there is none; or what can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content
from trainwiz.core.findings import Finding
from trainwiz.core.importing.merge import Merged
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, pad
from trainwiz.tui.import_words import (
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
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.findings_view import finding_lines
from trainwiz.tui.widgets.text_lines import TextLines, hanging

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
        self._merged: Merged | None = None
        self._findings: tuple[Finding, ...] = ()

    def show_import(self, merged: Merged | None, findings: tuple[Finding, ...]) -> None:
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


def report_lines(merged: Merged, width: int, marks: Marks) -> list[Content]:
    """Every line fits into `width` cells."""
    lines = hanging(Content.styled(tr(", ").join(map(part_words, merged.parts)), "bold"), width, 2)
    lines += hanging(Content.styled(f" {marks.dot} ".join(_titles(merged)), "$muted"), width, 2)
    for finding in merged.report.findings:
        lines += finding_lines(finding, width, marks)
    mapped = [
        ([f"{name} {value}".rstrip()], [f"{to} {set_to}", at]) for name, value, to, set_to, at in mapped_rows(merged)
    ]
    lines += _section(mapped_title(merged), mapped, width)
    lines += _section(renamed_title(merged), [([old], [new, at]) for old, new, at in renamed_rows(merged)], width)
    lines += _dropped(merged, width)
    unknown = [([f"{name} {value}".rstrip()], [at]) for name, value, at in unknown_rows(merged)]
    return [*lines, *_section(unknown_title(merged), unknown, width)]


def _titles(merged: Merged) -> list[str]:
    """What there is below, in figures."""
    report = merged.report
    titles = {
        mapped_title(merged): report.mapped,
        renamed_title(merged): report.renamed,
        dropped_title(merged): report.dropped,
        unknown_title(merged): report.unknown,
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


def _dropped(merged: Merged, width: int) -> Iterator[Content]:
    """The settings under their reasons."""
    if not merged.report.dropped:
        return
    yield Content("")
    yield Content.styled(dropped_title(merged), "bold")
    for why, settings in dropped_by_reason(merged).items():
        yield from hanging(Content(f"{INDENT}{why}"), width, 2)
        yield from hanging(Content.styled(f"{INDENT}{INDENT}{settings}", "$muted"), width, 4)
