"""The plan beside the form with its findings and their remedies; PlanStrip, the same in four lines beneath it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from operator import is_
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import (
    batch_lines,
    batch_text,
    finish_words,
    memory_lines,
    memory_title,
    of_capacity,
    peak_parts,
    run_words,
    time_lines,
    unknown_time_words,
)
from trainwiz.tui.screens.plan_state import PlanState, numbered_remedies, state_findings
from trainwiz.tui.text import cells, count, cut, duration_range, gib, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import RemedyButton
from trainwiz.tui.widgets.lists import LinedWidget, TextLines, dimmed, hanging, level_sign

if TYPE_CHECKING:
    from trainwiz.core.errors import Finding, Remedy
    from trainwiz.core.plan.result import MemoryPlan, Plan

INDENT = "  "
LONGEST_TEXT = 300
UNKNOWN_SIZE = mark("unknown: the model size is unknown")
TOO_LONG = "takes_"
"""How the codes of findings about the total time begin."""
TIME_VERDICTS = {
    "implausible": mark("{time}, implausible"),
    "impossible": mark("{time}, impossible"),
    "idle": mark("{time}, mostly idle"),
}
VERDICTS: Mapping[str | None, tuple[str, str, str]] = {
    "fits": ("ok", mark("fits"), "$success"),
    "tight": ("tight", mark("tight"), "$warning"),
    "does_not_fit": ("bad", mark("does not fit"), "$error"),
    "not_enough": ("bad", mark("not enough"), "$error"),
    None: ("", mark("capacity unknown"), "$muted"),
}
"""Verdict -> its mark, its words, its colour."""


def verdict_words(verdict: str | None) -> Content:
    """Mark and words, coloured: "✓ fits"."""
    sign, words, style = VERDICTS[verdict]
    return Content.styled(f"{getattr(marks, sign, '')} {tr(words)}".strip(), style)


def memory_bar(memory: MemoryPlan, width: int) -> Content:
    """The capacity as a bar: filled up to what is needed, hatched up to what is needed at most."""
    capacity = memory.capacity_bytes
    if not capacity:
        return Content.styled(marks.empty * width, "$track")
    least = memory.low_bytes if memory.device == "host RAM" else memory.judged_bytes
    low, high = (max(1, min(width, round(width * used / capacity))) for used in (least, memory.judged_high_bytes))
    colour = {"tight": "$warning", "does_not_fit": "$error"}.get(memory.verdict or "", "$accent")
    return Content.assemble(
        (marks.full * low, colour),
        (marks.range * (high - low), colour),
        (marks.empty * (width - max(low, high)), "$track"),
    )


def amount_words(memory: MemoryPlan) -> str:
    """ "5.4 of 7.8 GiB", "needs 8.1, has 7.8 GiB"."""
    used, capacity = gib(memory.judged_bytes), memory.capacity_bytes
    if not capacity:
        return f"{used} GiB"
    fits = memory.judged_bytes <= capacity
    words = mark("{used} of {total} GiB") if fits else mark("needs {used}, has {total} GiB")
    return tr(words, used=used, total=gib(capacity))


def parts_bar(breakdown: Mapping[str, int], width: int) -> str:
    """The peak as a bar of its parts, largest first, each with the mark that its words have."""
    parts = peak_parts(breakdown, marks.fills)
    total, bar, end = sum(amount for _, _, amount in parts), "", 0
    for fill, _, amount in parts:
        end += amount
        bar += fill * (round(width * end / total) - len(bar))
    return bar


def time_line(plan: Plan) -> Content:
    """The total as a range; a mark and a word where it is not plausible."""
    total = duration_range(plan.time.total_low_s, plan.time.total_high_s)
    words = TIME_VERDICTS.get(plan.time.verdict or "")
    if words is None and not any(finding.code.startswith(TOO_LONG) for finding in plan.findings):
        return Content(total)
    return Content.styled(f"! {total if words is None else tr(words, time=total)}", "$warning")


# The panel: batch, memory, host RAM, disk and time, as text with few colours.


def panel_lines(plan: Plan, width: int, now: datetime | None = None, *, details: bool = True) -> list[Content]:
    """The panel in `width` cells; long lines wrap beneath their text. `now` dates the end. Without `details`: what
    decides whether to start."""
    parts = _batch(plan, details), _memory(plan, width, details), _time(plan, now, details)
    return [piece for part in parts for line in (*part, Content()) for piece in hanging(line, width, 2 * len(INDENT))]


def _muted(*texts: str) -> Iterator[Content]:
    """Quiet lines; empty ones left out."""
    for text in texts:
        if text:
            yield Content.styled(INDENT + plain_text(text, LONGEST_TEXT), "$muted")


def _batch(plan: Plan, details: bool) -> Iterator[Content]:
    yield Content.styled(tr("Batch"), "bold")
    first, *rest = batch_lines(plan)
    if details:
        yield Content(INDENT + first)
        yield from _muted(*rest)
        return
    samples = plan.batch.effective_samples
    sequences = trn("{n} sequence", "{n} sequences", samples, n=count(samples))
    tokens = tr("{count} tokens per step", count=count(plan.batch.effective_tokens))
    yield Content(f"{INDENT}{sequences}, {tokens}")


def _memory(plan: Plan, width: int, details: bool) -> Iterator[Content]:
    memory = plan.memory
    note = f" {marks.dot} {plain_text(tr(memory.device))}"
    yield Content.assemble((memory_title(memory.device), "bold"), (note, "$muted"))
    if plan.model.parameters is None:
        # Zeros would read as figures, and "fits" as a verdict.
        yield from _muted(tr(UNKNOWN_SIZE))
        return
    verdict = verdict_words(memory.verdict)
    bar = memory_bar(memory, max(8, width - len(INDENT) - verdict.cell_length - 2))
    yield Content.assemble(INDENT, bar, "  ", verdict)
    yield Content(INDENT + amount_words(memory))
    if not details:
        yield from _muted(memory.waiting)
    else:
        yield from _muted(parts_bar(memory.breakdown, width - len(INDENT)), *memory_lines(plan, marks.fills))
    rows = [
        (tr("RAM"), memory.host_ram_bytes, memory.host_ram_capacity_bytes),
        (tr("Disk"), memory.disk_bytes, memory.disk_capacity_bytes),
    ]
    for label, needed, has in rows:
        verdict = Content() if has is None else verdict_words("fits" if needed <= has else "not_enough")
        if details or (has is not None and needed > has):
            yield Content.assemble((f"{label}  ", "bold"), f"{of_capacity(needed, has)}   ", verdict)
    low, high = memory.host_ram_low_bytes, memory.host_ram_high_bytes
    if details and plan.config.engine.device == "cuda" and low is not None and high is not None:
        yield from _muted(tr("RAM between {low} and {high}, predicted", low=gib(low), high=gib(high)))


def _time(plan: Plan, now: datetime | None, details: bool) -> Iterator[Content]:
    time = plan.time
    yield Content.styled(tr("Time"), "bold")
    if time.total_low_s is None:
        yield from _muted(unknown_time_words(plan))
    else:
        yield Content.assemble(INDENT, time_line(plan))
    if details:
        done = finish_words(time, now) if now is not None else ""
        yield from _muted(done, *time_lines(plan))
    elif time.total_low_s is not None:
        # What was asked for is in the list of steps.
        yield from _muted(*run_words(plan)[1:])


class PlanPanel(VerticalScroll, can_focus=False):
    """An old plan is dimmed while the head line says "updating"; it is never blank. The rows of findings are kept from
    plan to plan, so that a button keeps the focus while figures arrive."""

    DEFAULT_CSS = """
    PlanPanel { padding: 0 1; scrollbar-size: 1 1; scrollbar-gutter: stable; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._plan, self._heading = TextLines(id="panel-plan"), TextLines()
        self._texts: list[TextLines] = []
        self._buttons: list[RemedyButton] = []
        self._state: PlanState | None = None
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield from (self._plan, self._heading)

    def show(self, state: PlanState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        state, width = self._state, self.scrollable_content_region.width
        if state is None or width <= 0:
            return
        plan, reading = state.plan, state.reading
        self._plan.dim(state.is_old)
        shown = (plan, reading.findings, reading.read_at, state.details, width)
        if plan is not None and self._drawn and all(map(is_, shown, self._drawn)):
            return
        self._drawn = shown
        if plan is not None:
            self._plan.show(panel_lines(plan, width, reading.read_at, details=state.details))
        else:
            self._plan.show(_placeholder(waiting_words(state)))
        if plan is not None or reading.findings:
            self._draw_findings(state_findings(state), width)

    def _draw_findings(self, findings: tuple[Finding, ...], width: int) -> None:
        title = Content.styled(trn("{n} finding", "{n} findings", len(findings)), "bold")
        if not findings:
            title = Content.assemble((f"{marks.ok} ", "$success"), (tr("no problems found"), "$muted"))
        self._heading.show(hanging(title, width, 2))
        number, most = 0, len(numbered_remedies(findings))
        rows: list[TextLines] = []
        for index, finding in enumerate(findings):
            if index == len(self._texts):
                self._texts.append(TextLines())
            rows.append(self._texts[index])
            rows[-1].show(finding_lines(finding, width))
            for remedy in finding.remedies:
                if remedy.is_taken and number < most:
                    number += 1
                    if number > len(self._buttons):
                        self._buttons.append(RemedyButton(number))
                    rows.append(self._buttons[number - 1])
                    rows[-1].show(remedy_lines(number, remedy, width))
        self._place(rows)

    def _place(self, rows: list[TextLines]) -> None:
        """These rows in this order below the heading, and no others."""
        for place, row in enumerate(rows, start=1):
            if row.parent is None:
                self.mount(row)
            if row in self.children and self.children[place + 1] is not row:
                self.move_child(row, after=place)
        for row in (*self._texts, *self._buttons):
            row.display = row in rows


def waiting_words(state: PlanState) -> str:
    waits_for = state.reading.waits_for
    return f"{tr(waits_for)} {marks.ellipsis}" if waits_for else tr("no plan")


def _placeholder(text: str) -> list[Content]:
    lines: list[Content] = []
    for heading in (tr("Batch"), tr("Memory"), tr("RAM"), tr("Disk"), tr("Time")):
        lines += [Content.styled(heading, "bold"), Content.styled(f"  {text}", "$muted"), Content()]
    return lines


def remedy_lines(number: int, remedy: Remedy, width: int) -> list[Content]:
    """ "1  apply: ..."."""
    text = plain_text(remedy.text) if remedy.opens else tr("apply: {remedy}", remedy=plain_text(remedy.text))
    return hanging(Content.assemble("    ", (f"{number}  ", "$accent"), text), width, 7)


def finding_lines(finding: Finding, width: int) -> list[Content]:
    """The sentence, and beneath it what can be done that no button does."""
    lines = hanging(Content.assemble(INDENT, level_sign(finding.severity), " ", plain_text(finding.message)), width, 4)
    for remedy in finding.remedies:
        if not remedy.is_taken:
            words = Content.assemble("    ", (f"{marks.dot}  {plain_text(remedy.text)}", "$muted"))
            lines += hanging(words, width, 7)
    return lines


# The folded plan: four lines beneath the form, or one where the screen is low.


LABEL_CELLS = 10


def strip_lines(state: PlanState, width: int, height: int) -> list[Content]:
    """The plan in at most `height` lines of `width` cells."""
    plan, findings = state.plan, state_findings(state)
    summary = _line(tr("Findings"), _finding_summary(findings, width))
    if plan is None:
        waiting = _line(tr("Plan"), Content.styled(waiting_words(state), "$muted"))
        return [waiting, summary][: height if findings else 1]
    if height < 4:
        batch = plan.batch
        factors = f"{batch.micro_batch}{marks.times}{batch.accumulation}{marks.times}{batch.world_size}  "
        first = Content.assemble(factors, verdict_words(plan.memory.verdict), "  ", time_line(plan))
        return [first, summary][:height]
    batch_line = _line(tr("Batch"), Content(cut(batch_text(plan), width - LABEL_CELLS, marks.ellipsis)))
    memory, time = memory_title(plan.memory.device), tr("Time")
    if plan.model.parameters is None:
        unknown = Content.styled(tr(UNKNOWN_SIZE), "$muted")
        return [batch_line, _line(memory, unknown), _line(time, unknown), summary]
    time_words = Content.assemble(time_line(plan), (f"  {' = '.join(run_words(plan))}", "$muted"))
    return [batch_line, _line(memory, _memory_words(plan.memory, width)), _line(time, time_words), summary]


def _line(label: str, content: Content) -> Content:
    return Content.assemble((pad(label, LABEL_CELLS), "bold"), content)


def _memory_words(memory: MemoryPlan, width: int) -> Content:
    verdict, amount = verdict_words(memory.verdict), f"  {amount_words(memory)}"
    bar = memory_bar(memory, max(6, min(24, width - LABEL_CELLS - verdict.cell_length - cells(amount) - 2)))
    return Content.assemble(bar, "  ", verdict, (amount, "$muted"))


def _finding_summary(findings: tuple[Finding, ...], width: int) -> Content:
    if not findings:
        return Content.styled(f"{marks.ok} {tr('none')}", "$success")
    first, others = findings[0], len(findings) - 1
    more = f"  {trn('+{n} more, f1', '+{n} more, f1', others)}" if others else ""
    message = cut(plain_text(first.message), max(10, width - LABEL_CELLS - 2 - cells(more)), marks.ellipsis)
    return Content.assemble(level_sign(first.severity), " ", message, (more, "$muted"))


class PlanStrip(LinedWidget):
    """The folded plan. An old one is dimmed."""

    DEFAULT_CSS = """
    PlanStrip { height: 4; padding: 0 1; }
    """

    _state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        if self.display:
            self.refresh_changed()

    def content_lines(self) -> list[Content]:
        state, size = self._state, self.content_size
        if state is None or not size:
            return []
        lines = strip_lines(state, size.width, size.height)
        return dimmed(lines) if state.is_old else lines
