"""The plan in four lines beneath the form, or in one where the screen is low."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import memory_title, steps_words
from trainwiz.tui.screens.plan_state import PlanState, state_findings
from trainwiz.tui.text import cells, count, cut, gib, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import LinedWidget, dimmed, level_sign
from trainwiz.tui.widgets.plan_panel import (
    UNKNOWN_SIZE,
    batch_product,
    memory_bar,
    time_line,
    verdict_words,
)

if TYPE_CHECKING:
    from trainwiz.core.errors import Finding
    from trainwiz.core.plan.result import Plan


def strip_lines(state: PlanState, width: int, height: int) -> list[Content]:
    """The plan in at most `height` lines of `width` cells."""
    findings = state_findings(state)
    plan = state.plan
    summary = _finding_summary(findings, width)
    if plan is None:
        waiting = state.reading.waits_for
        text = f"{tr(waiting)} {marks.ellipsis}" if waiting else tr("no plan")
        first = Content.assemble((_label(tr("Plan")), "bold"), (text, "$muted"))
        return [first, summary][: height if findings else 1]
    lines = [_one_line(plan)] if height < 4 else _plan_lines(plan, width)
    return [*lines, summary][:height]


def _label(text: str) -> str:
    """A label as wide as the widest one of the strip."""
    labels = tr("Batch"), tr("Memory"), memory_title("host RAM"), tr("Time"), tr("Findings")
    return pad(text, max(map(cells, labels)) + 1)


def _one_line(plan: Plan) -> Content:
    batch = plan.batch
    return Content.assemble(
        f"{batch.micro_batch}{marks.times}{batch.accumulation}{marks.times}{batch.world_size}  ",
        verdict_words(plan.memory.verdict),
        "  ",
        time_line(plan),
    )


def _plan_lines(plan: Plan, width: int) -> list[Content]:
    tokens = tr("{count} tokens", count=count(plan.batch.effective_tokens))
    batch = _with_extra(Content.assemble((_label(tr("Batch")), "bold"), batch_product(plan)), tokens, width)
    if plan.model.parameters is None:
        labels = _label(memory_title(plan.memory.device)), _label(tr("Time"))
        return [batch, *(Content.assemble((label, "bold"), (tr(UNKNOWN_SIZE), "$muted")) for label in labels)]
    time = Content.assemble((_label(tr("Time")), "bold"), time_line(plan))
    return [batch, _memory_line(plan, width), _with_extra(time, steps_words(plan), width)]


def _memory_line(plan: Plan, width: int) -> Content:
    memory = plan.memory
    verdict = verdict_words(memory.verdict)
    used, capacity = gib(memory.judged_bytes), memory.capacity_bytes
    words = (
        mark("{used} of {total} GiB")
        if memory.judged_bytes <= (capacity or 0)
        else mark("needs {used}, has {total} GiB")
    )
    text = tr(words, used=used, total=gib(capacity)) if capacity else f"{used} GiB"
    label = _label(memory_title(memory.device))
    bar = memory_bar(plan, max(6, min(24, width - cells(label) - verdict.cell_length - cells(text) - 4)))
    return Content.assemble((label, "bold"), bar, "  ", verdict, (f"  {text}", "$muted"))


def _with_extra(line: Content, extra: str, width: int) -> Content:
    """A line with what else has room in it."""
    fits = line.cell_length + cells(extra) + 2 <= width
    return line + Content.styled(f"  {extra}", "$muted") if fits else line


def _finding_summary(findings: tuple[Finding, ...], width: int) -> Content:
    label = _label(tr("Findings"))
    if not findings:
        return Content.assemble((label, "bold"), (f"{marks.ok} {tr('none')}", "$success"))
    first, others = findings[0], len(findings) - 1
    more = f"  {trn('+{n} more, f1', '+{n} more, f1', others)}" if others else ""
    message = cut(plain_text(first.message), max(10, width - cells(label) - 2 - cells(more)), marks.ellipsis)
    return Content.assemble((label, "bold"), level_sign(first.severity), " ", message, (more, "$muted"))


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
