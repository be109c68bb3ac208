"""DataFacts: how many rows there are, where that number comes from, and what is wrong with some of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import count, size
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from trainwiz.core.data.summary import DataSummary
    from trainwiz.core.findings import Finding
    from trainwiz.tui.screens.plan_state import PlanState

INDENT = 4
MOST_FINDINGS = 4
LONGEST_FINDING = 600


class DataFacts(StepPart):
    """Beneath the name of the data."""

    DEFAULT_CSS = """
    DataFacts { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.redraw()

    def _lines(self, width: int) -> list[Content]:
        return [] if self._state is None else list(fact_lines(self._state, width, self.marks))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> RenderResult:
        return Content("\n").join(self._lines(self.content_size.width))


def fact_lines(state: PlanState, width: int, marks: Marks) -> Iterator[Content]:
    """Rows, their files and the findings; what is being read while it is."""
    reading = state.reading
    data = reading.data
    if data is not None:
        files = reading.glance.files if reading.glance is not None else 1
        joined = state.plan is not None and joins_texts(state.plan.config)
        for sentence in (rows_words(data, joined=joined), place_words(data, files)):
            yield from _wrapped(sentence, width, "$muted")
    elif reading.waits_for or state.updating:
        yield from _wrapped(f"{tr('The rows are being read')} {marks.ellipsis}", width, "$muted")
    elif reading.glance is not None and reading.glance.rows:
        yield from _wrapped(tr("The rows cannot be used yet."), width, "$muted")
    else:
        yield from _wrapped(tr("No rows could be read."), width, "$muted")
    yield from _finding_lines(findings_of(state), width, marks)


def rows_words(data: DataSummary, *, joined: bool) -> str:
    """How many rows there are to learn from, and whether that was counted; sequences, of their mean length, where texts
    are joined."""
    if joined:
        return tr(
            "About {rows} training sequences packed from {texts} texts; {held} held out.",
            rows=count(data.rows), texts=count(data.texts), held=count(data.validation_rows),
        )  # fmt: skip
    rows, held = count(data.rows), count(data.validation_rows)
    if data.rows_exact:
        return tr("{rows} rows to learn from, counted; {held} held out.", rows=rows, held=held)
    return tr("About {rows} rows to learn from, estimated from a sample; {held} held out.", rows=rows, held=held)


def place_words(data: DataSummary, files: int) -> str:
    """The bytes on disk, and in how many files."""
    return trn("{size} in {n} file.", "{size} in {n} files.", files, size=size(data.bytes_on_disk))


def findings_of(state: PlanState) -> tuple[Finding, ...]:
    """What is to be said about the rows, errors first, each once; an error that the field says itself is left out."""
    from trainwiz.tui.screens.plan_field_table import FIELD_BY_ID
    from trainwiz.tui.screens.plan_state import field_problem

    reading = state.reading
    said = {field_problem(state, FIELD_BY_ID[name]) for name in ("data", "column", "target_column")}
    about = (*reading.data_findings, *(reading.data.findings if reading.data is not None else ()))
    return tuple({one.message: one for one in about if one.message not in said}.values())


def _finding_lines(findings: tuple[Finding, ...], width: int, marks: Marks) -> Iterator[Content]:
    for finding in findings[:MOST_FINDINGS]:
        is_error = finding.severity == "error"
        mark = marks.bad if is_error else marks.tight
        text = f"{mark} {plain_text(finding.message, LONGEST_FINDING)}"
        yield from _wrapped(text, width, "$error" if is_error else "$warning")
    more = len(findings) - MOST_FINDINGS
    if more > 0:
        yield from _wrapped(trn("and {n} more finding", "and {n} more findings", more), width, "$muted")


def _wrapped(text: str, width: int, style: str) -> Iterator[Content]:
    for line in Content(text).wrap(max(10, width - INDENT - 1)):
        yield Content.styled(" " * INDENT + line.plain.rstrip(), style)
