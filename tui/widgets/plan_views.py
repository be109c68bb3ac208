"""PlanPanel and PlanStrip: the plan beside the form, or folded to four lines beneath it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import count, deviation, gib
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.plan_panel import (
    SEVERITY_STYLES,
    UNKNOWN_SIZE,
    batch_product,
    finding_lines,
    hanging,
    memory_bar,
    memory_verdict,
    panel_content,
    severity_mark,
    time_line,
)

if TYPE_CHECKING:
    from trainwiz.core.findings import Finding
    from trainwiz.core.plan.result import Plan
    from trainwiz.tui.screens.plan_state import PlanState


def state_findings(state: PlanState) -> tuple[Finding, ...]:
    """What stands against the plan, or why there is none."""
    if state.reading.findings:
        return state.reading.findings
    return state.plan.findings if state.plan is not None else ()


class PlanPanel(VerticalScroll, can_focus=False):
    """The whole plan. An old plan is dimmed and says "updating"; it is never blank."""

    DEFAULT_CSS = """
    PlanPanel { padding: 0 1; scrollbar-size: 1 1; scrollbar-gutter: stable; }
    PlanPanel Static { height: auto; }
    PlanPanel.-old Static { text-opacity: 60%; }
    """

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._state: PlanState | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="panel-plan", markup=False)
        yield Static("", id="panel-findings", markup=False)

    def show(self, state: PlanState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        state = self._state
        width = self.scrollable_content_region.width
        if state is None or width <= 0:
            return
        self.set_class(state.plan is not None and (state.slow or bool(state.reading.findings)), "-old")
        upper = self.query_one("#panel-plan", Static)
        if state.plan is None:
            waiting = state.reading.waits_for
            upper.update(_placeholder(f"{waiting} {self._marks.ellipsis}" if waiting else "no plan"))
        else:
            upper.update(panel_content(state.plan, width, self._marks, state.reading.read_at))
        findings = state_findings(state)
        lower = self.query_one("#panel-findings", Static)
        if state.plan is None and not findings:
            lower.update("")
        else:
            lower.update(hanging(finding_lines(findings, self._marks), width))


def _placeholder(text: str) -> Content:
    muted = "$muted"
    lines = []
    for heading in ("Batch", "Memory", "Host RAM", "Disk", "Time"):
        lines += [Content.styled(heading, "bold"), Content.styled(f"  {text}", muted), Content()]
    return Content("\n").join(lines)


class PlanStrip(Widget):
    """The plan in four lines: batch, memory, time, findings; in one where the screen is low."""

    DEFAULT_CSS = """
    PlanStrip { height: 4; padding: 0 1; }
    PlanStrip.-old { text-opacity: 60%; }
    """

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.set_class(state.plan is not None and (state.slow or bool(state.reading.findings)), "-old")
        self.refresh()

    def render(self) -> Content:
        if self._state is None:
            return Content()
        return strip_content(self._state, self.content_size.width, self.content_size.height, self._marks)


def strip_content(state: PlanState, width: int, height: int, marks: Marks) -> Content:
    """The plan in `height` lines of `width` cells."""
    findings = state_findings(state)
    plan = state.plan
    if plan is None:
        waiting = state.reading.waits_for
        text = f"{waiting} {marks.ellipsis}" if waiting else "no plan"
        lines = [
            Content.assemble((f"{'Plan':<9}", "bold"), (text, "$muted")),
            *(_finding_summary(findings, width, marks) if findings else []),
        ]
        return Content("\n").join(lines[:height])
    if height < 4:
        return Content("\n").join([_one_line(plan, marks), *_finding_summary(findings, width, marks)][:height])
    return Content("\n").join([*_plan_lines(plan, width, marks), *_finding_summary(findings, width, marks)][:height])


def _one_line(plan: Plan, marks: Marks) -> Content:
    batch = plan.batch
    return Content.assemble(
        f"{batch.micro_batch}{marks.times}{batch.accumulation}{marks.times}{batch.world_size}  ",
        memory_verdict(plan, marks),
        "  ",
        time_line(plan),
    )


def _plan_lines(plan: Plan, width: int, marks: Marks) -> list[Content]:
    off = deviation(plan.batch.deviation, marks.minus)
    batch = Content.assemble((f"{'Batch':<9}", "bold"), batch_product(plan, marks))
    tokens = f", {count(plan.batch.effective_tokens)} tokens"
    if batch.cell_length + len(tokens) <= width:
        batch += Content.styled(tokens, "$muted")
    if off and batch.cell_length + len(off) + 2 <= width:
        batch += Content.styled(f"  {off}", "$muted")
    if plan.model.parameters is None:
        labels = (f"{'Memory':<9}", f"{'Time':<9}")
        return [batch, *(Content.assemble((label, "bold"), (UNKNOWN_SIZE, "$muted")) for label in labels)]
    verdict = memory_verdict(plan, marks)
    capacity = plan.memory.capacity_bytes
    text = (
        f"{gib(plan.memory.device_used_bytes)} of {gib(capacity)} GiB"
        if capacity
        else f"{gib(plan.memory.device_used_bytes)} GiB"
    )
    bar = memory_bar(plan, max(6, min(24, width - 9 - verdict.cell_length - len(text) - 4)), marks)
    memory = Content.assemble((f"{'Memory':<9}", "bold"), bar, "  ", verdict, (f"  {text}", "$muted"))
    tier = f"  {plan.memory.tier}{marks.ellipsis if plan.memory.waiting else ''}"
    if memory.cell_length + len(tier) <= width:
        memory += Content.styled(tier, "$muted")
    time = Content.assemble((f"{'Time':<9}", "bold"), time_line(plan))
    ram = plan.memory.host_ram_bytes, plan.memory.host_ram_capacity_bytes
    extras = [f"host RAM {gib(ram[0])} of {gib(ram[1])} GiB"] if ram[1] else []
    extras.append(f"disk {gib(plan.memory.disk_bytes)} GiB")
    for extra in extras:
        if time.cell_length + len(extra) + 3 <= width:
            time += Content.styled(f"   {extra}", "$muted")
    return [batch, memory, time]


def _finding_summary(findings: tuple[Finding, ...], width: int, marks: Marks) -> list[Content]:
    label = (f"{'Findings':<9}", "bold")
    if not findings:
        return [Content.assemble(label, (f"{marks.ok} none", "$success"))]
    first = findings[0]
    more = f"  +{len(findings) - 1} more, f1" if len(findings) > 1 else ""
    message = plain_text(first.message, max(10, width - 11 - len(more)))
    style = SEVERITY_STYLES[first.severity]
    mark = severity_mark(first.severity, marks)
    return [Content.assemble(label, (mark, style), " ", message, (more, "$muted"))]
