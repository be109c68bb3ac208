"""PlanPanel: the plan beside the form, and its findings with their remedies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from operator import is_
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.words import part_word
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import (
    finish_words,
    length_words,
    memory_title,
    need_words,
    network_words,
    pace_words,
    padding_words,
    run_words,
    shown_words,
    source_words,
    steps_words,
    time_details,
    unknown_time_words,
)
from trainwiz.tui.screens.plan_maker import effect_key, numbered_remedies
from trainwiz.tui.screens.plan_state import PlanState, state_findings
from trainwiz.tui.text import GIB, cells, count, deviation, duration_range, gib, pad, percent, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import RemedyButton
from trainwiz.tui.widgets.lists import TextLines, hanging, level_sign

if TYPE_CHECKING:
    from trainwiz.core.errors import Finding, Remedy
    from trainwiz.core.plan.result import Plan

# Memory of a plan as it is drawn: the verdict, the capacity as a bar, and what the peak is made of, with a legend.

VERDICTS: Mapping[str | None, tuple[str, str, str]] = {
    "fits": ("ok", mark("fits"), "$success"),
    "tight": ("tight", mark("tight"), "$warning"),
    "does_not_fit": ("bad", mark("does not fit"), "$error"),
}
UNKNOWN = "", mark("capacity unknown"), "$muted"
"""Verdict -> its mark, its words, its colour."""
WORTH_A_WORD = 0.005 * GIB


def verdict_words(verdict: str | None) -> Content:
    """Mark and words, coloured: "✓ fits"."""
    sign, words, style = VERDICTS.get(verdict, UNKNOWN)
    return Content.styled(f"{getattr(marks, sign, '')} {tr(words)}".strip(), style)


def memory_bar(plan: Plan, width: int) -> Content:
    """The capacity as a bar: filled up to what is needed, hatched up to what is needed at most."""
    memory = plan.memory
    capacity = memory.capacity_bytes
    if not capacity:
        return Content.styled(marks.empty * width, "$track")
    least = memory.low_bytes if memory.device == "host RAM" else memory.judged_bytes
    low = min(width, round(width * least / capacity))
    high = min(width, max(low, round(width * memory.judged_high_bytes / capacity)))
    if memory.judged_high_bytes > 0:
        low, high = max(low, 1), max(high, 1)
    colour = {"tight": "$warning", "does_not_fit": "$error"}.get(memory.verdict or "", "$accent")
    return Content.assemble(
        (marks.full * low, colour), (marks.range * (high - low), colour), (marks.empty * (width - high), "$track")
    )


def part_lines(breakdown: Mapping[str, int], width: int) -> list[Content]:
    """The peak as a bar of its parts, largest first, and beneath it which is which, in GiB."""
    parts = [(name, amount) for name, amount in breakdown.items() if amount >= WORTH_A_WORD]
    parts.sort(key=lambda part: -part[1])
    total = sum(amount for _, amount in parts)
    if not total or width < 8:
        return []
    fills = marks.fills
    bar, legend, end = "", [], 0
    for index, (name, amount) in enumerate(parts):
        fill = fills[min(index, len(fills) - 1)]
        end += amount
        bar += fill * max(0, round(width * end / total) - len(bar))
        legend.append(f"{fill} {plain_text(part_word(name))} {gib(amount)}")
    return [Content.styled(bar, "$muted"), *_filled(legend, width)]


def _filled(words: list[str], width: int) -> list[Content]:
    """As many words in each line as there is room for."""
    lines = [Content.styled(words[0], "$muted")]
    for word in words[1:]:
        longer = lines[-1] + Content.styled(f"  {word}", "$muted")
        lines[-1:] = [longer] if longer.cell_length <= width else [lines[-1], Content.styled(word, "$muted")]
    return lines


# The plan beside the form: batch, memory, host RAM, disk and time, as text with few colours.

INDENT = "  "
LONGEST_TEXT = 300
UNKNOWN_SIZE = mark("unknown: the model size is unknown")
WORTH_SAYING = 0.01
"""How far the batch is off its target before the short form says it."""
TOO_LONG = "takes_"
"""How the codes of findings about the total time begin."""
TIME_VERDICTS = {
    "implausible": mark("{time}, implausible"),
    "impossible": mark("{time}, impossible"),
    "idle": mark("{time}, mostly idle"),
}


def batch_product(plan: Plan) -> str:
    """ "6 × 651 × 1 process  =  3,906 sequences"."""
    batch = plan.batch
    processes = trn("{n} process", "{n} processes", batch.world_size)
    factors = f" {marks.times} ".join((count(batch.micro_batch), count(batch.accumulation), processes))
    return f"{factors}  =  {_sequences(plan)}"


def _sequences(plan: Plan) -> str:
    samples = plan.batch.effective_samples
    return trn("{n} sequence", "{n} sequences", samples, n=count(samples))


def panel_lines(plan: Plan, width: int, now: datetime | None = None, *, details: bool = True) -> list[Content]:
    """The panel in `width` cells; long lines wrap beneath their text. `now` dates the end. Without `details`: what
    decides whether to start."""
    parts = _batch(plan, details), _memory(plan, width, details), _time(plan, now, details)
    return [piece for part in parts for line in (*part, Content()) for piece in hanging(line, width, 2 * len(INDENT))]


def _bar_line(plan: Plan, width: int) -> Content:
    verdict = verdict_words(plan.memory.verdict)
    bar = memory_bar(plan, max(8, width - len(INDENT) - verdict.cell_length - 2))
    return Content.assemble(INDENT, bar, "  ", verdict)


def _need(plan: Plan) -> str:
    memory = plan.memory
    return need_words(memory)


def _heading(text: str, note: str = "") -> Content:
    return Content.assemble((text, "bold"), (note, "$muted"))


def _batch(plan: Plan, details: bool) -> Iterator[Content]:
    batch = plan.batch
    yield _heading(tr("Batch"))
    off = deviation(batch.deviation, marks.minus)
    target = tr("{deviation} from target", deviation=off) if batch.deviation else off
    tokens = tr("{count} tokens per step", count=count(batch.effective_tokens))
    if not details:
        shown = target if abs(batch.deviation or 0) > WORTH_SAYING else ""
        yield Content.assemble(f"{INDENT}{_sequences(plan)}, {tokens}", (f"   {shown}", "$muted"))
        return
    yield Content(INDENT + batch_product(plan))
    yield Content.assemble(f"{INDENT}{tokens}", (f"   {target}", "$muted"))
    yield from _muted(length_words(plan.task, batch.sequence_length, plan.config.batch.target_length))
    if batch.real_tokens is not None and batch.effective_tokens:
        share = percent(batch.real_tokens / batch.effective_tokens)
        yield from _muted(tr("{count} non-padding   {share}", count=count(batch.real_tokens), share=share))
    yield from _muted(*padding_words(batch))


def _memory(plan: Plan, width: int, details: bool) -> Iterator[Content]:
    memory, known = plan.memory, plan.model.parameters is not None
    capacity = f" {marks.dot} {gib(memory.capacity_bytes)} GiB" if details and memory.capacity_bytes is not None else ""
    yield _heading(memory_title(memory.device), f" {marks.dot} {plain_text(tr(memory.device))}{capacity}")
    if known:
        yield _bar_line(plan, width)
        yield from (_device_memory(plan, width) if details else _short_memory(plan))
    else:
        # Zeros would read as figures, and "fits" as a verdict.
        yield from _muted(tr(UNKNOWN_SIZE))
    if details and not known:
        return
    rows = (
        (tr("RAM"), memory.host_ram_bytes, memory.host_ram_capacity_bytes),
        (tr("Disk"), memory.disk_bytes, memory.disk_capacity_bytes),
    )
    if not details:
        short = [row for row in rows if row[2] is not None and row[1] > row[2]]
        yield from (_capacity_line(*row) for row in short)
        return
    yield Content()
    left = max(cells(label) for label, _, _ in rows) + 1
    for place, (label, needed, has) in enumerate(rows):
        yield _capacity_line(pad(label, left), needed, has)
        low, high = memory.host_ram_low_bytes, memory.host_ram_high_bytes
        if place == 0 and plan.config.engine.device == "cuda" and low is not None and high is not None:
            yield from _muted(tr("between {low} and {high}, predicted", low=gib(low), high=gib(high)))


def _short_memory(plan: Plan) -> Iterator[Content]:
    memory = plan.memory
    capacity = memory.capacity_bytes if memory.verdict == "fits" else None
    amounts = tr("{used} of {total} GiB", used=gib(memory.judged_bytes), total=gib(capacity)) if capacity else ""
    yield Content(INDENT + (amounts or _need(plan)))
    yield from _muted(memory.waiting)


def _device_memory(plan: Plan, width: int) -> Iterator[Content]:
    memory = plan.memory
    if memory.device == "host RAM":
        between = tr("between {low} and {high}", low=gib(memory.low_bytes), high=gib(memory.high_bytes))
        yield Content.assemble(f"{INDENT}{gib(memory.device_used_bytes)} GiB", (f"   {between}", "$muted"))
    else:
        yield Content(INDENT + _need(plan))
    yield from _muted(source_words(memory), memory.waiting)
    yield from _muted(tr("peak: {moment}", moment=memory.peak_moment))
    yield from (Content(INDENT) + line for line in part_lines(memory.breakdown, width - len(INDENT)))
    shown = shown_words(memory, plan.config.engine.device)
    evaluation = memory.evaluation_bytes
    yield from _muted(shown, "" if evaluation is None else tr("{size} during evaluation", size=size(evaluation)))


def _muted(*texts: str) -> Iterator[Content]:
    """Quiet lines; empty ones left out."""
    for text in texts:
        if text:
            yield Content.styled(INDENT + plain_text(text, LONGEST_TEXT), "$muted")


def _capacity_line(label: str, needed: int, capacity: int | None) -> Content:
    if capacity is None:
        unknown = tr("free space unknown")
        return Content.assemble((label, "bold"), f"{gib(needed):>7} GiB", (f"   {unknown}", "$muted"))
    fits = needed <= capacity
    verdict = (f"{marks.ok} {tr('fits')}", "$success") if fits else (f"{marks.bad} {tr('not enough')}", "$error")
    amount = tr("{needed} of {capacity} GiB", needed=f"{gib(needed):>7}", capacity=f"{gib(capacity):>7}")
    return Content.assemble((label, "bold"), f"{amount}   ", verdict)


def time_line(plan: Plan) -> Content:
    """The total as a range; a mark and a word where it is not plausible."""
    total = duration_range(plan.time.total_low_s, plan.time.total_high_s)
    verdict = TIME_VERDICTS.get(plan.time.verdict or "")
    if verdict is not None or any(finding.code.startswith(TOO_LONG) for finding in plan.findings):
        return Content.styled(f"! {total if verdict is None else tr(verdict, time=total)}", "$warning")
    return Content(total)


def _time(plan: Plan, now: datetime | None, details: bool) -> Iterator[Content]:
    time = plan.time
    yield _heading(tr("Time"))
    step = duration_range(time.step_low_s, time.step_high_s)
    if time.total_low_s is None:
        unknown = unknown_time_words(time.steps, time.step_s)
        yield from _muted(tr(UNKNOWN_SIZE) if plan.model.parameters is None else unknown)
        if details and time.step_s is not None:
            yield from _muted(tr("{time} per step", time=step), network_words(time))
        return
    yield Content.assemble(INDENT, time_line(plan))
    if not details:
        # What was asked for is in the list of steps.
        yield from _muted(*run_words(plan)[1:])
        return
    done = finish_words(time.total_low_s, time.total_high_s, now) if now is not None else ""
    pace = pace_words(time)
    if time.fraction_of_peak is not None:
        pace = tr("{share} of peak TFLOP/s, {pace}", share=percent(time.fraction_of_peak), pace=pace)
    yield from _muted(
        done,
        f"{steps_words(plan)} {marks.times} {step}",
        pace,
        *time_details(time),
    )


class PlanPanel(VerticalScroll, can_focus=False):
    """An old plan is dimmed while the head line says "updating"; it is never blank."""

    DEFAULT_CSS = """
    PlanPanel { padding: 0 1; scrollbar-size: 1 1; scrollbar-gutter: stable; }
    """

    _state: PlanState | None = None
    _drawn: tuple[object, ...] = ()
    _findings: FindingsView | None = None

    def compose(self) -> ComposeResult:
        yield TextLines(id="panel-plan")

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
        reading = state.reading
        upper = self.query_one("#panel-plan", TextLines)
        upper.dim(state.is_old)
        shown = (state.plan, reading.findings, reading.effects, reading.read_at, state.details, width)
        if state.plan is not None and self._drawn and all(map(is_, shown, self._drawn)):
            return
        self._drawn = shown
        if state.plan is not None:
            upper.show(panel_lines(state.plan, width, reading.read_at, details=state.details))
        else:
            waits = f"{tr(reading.waits_for)} {marks.ellipsis}" if reading.waits_for else tr("no plan")
            upper.show(_placeholder(waits))
            if not reading.findings:
                return
        if self._findings is None:
            self._findings = FindingsView(id="panel-findings")
            self.mount(self._findings)
        self._findings.show(state, width)


def _placeholder(text: str) -> list[Content]:
    lines: list[Content] = []
    for heading in (tr("Batch"), tr("Memory"), tr("RAM"), tr("Disk"), tr("Time")):
        lines += [Content.styled(heading, "bold"), Content.styled(f"  {text}", "$muted"), Content()]
    return lines


def effect_words(before: Plan, after: Plan) -> Content:
    """ "5.4 → 4.1 GiB ✓ fits · 7 to 18 years → 11 to 27 days"; what stays as it is is left out."""
    parts: list[Content] = []
    old, new = gib(before.memory.judged_bytes), gib(after.memory.judged_bytes)
    if old != new or before.memory.verdict != after.memory.verdict:
        memory = Content.styled(f"{old} {marks.arrow} {new} GiB ", "$muted") + verdict_words(after.memory.verdict)
        if after.memory.tier != before.memory.tier:
            memory += Content.styled(f" ({tr(after.memory.tier)})", "$muted")
        parts.append(memory)
    old, new = (duration_range(one.time.total_low_s, one.time.total_high_s) for one in (before, after))
    if old != new:
        parts.append(Content.styled(f"{old} {marks.arrow} {new}", "$muted"))
    if not parts:
        return Content.styled(tr("memory and time unchanged"), "$muted")
    return Content.styled(f" {marks.dot} ", "$muted").join(parts)


def remedy_lines(number: int, remedy: Remedy, effect: Content | None, width: int) -> list[Content]:
    """ "1  apply: ...", and beneath it what that brings."""
    text = plain_text(remedy.text) if remedy.opens else tr("apply: {remedy}", remedy=plain_text(remedy.text))
    lines = hanging(Content.assemble("    ", (f"{number}  ", "$accent"), text), width, 7)
    if effect is not None:
        lines += hanging(Content(" " * 7) + effect, width, 7)
    return lines


def finding_lines(finding: Finding, width: int) -> list[Content]:
    """The sentence, and beneath it what can be done that no button does."""
    lines = hanging(Content.assemble(INDENT, level_sign(finding.severity), " ", plain_text(finding.message)), width, 4)
    for remedy in finding.remedies:
        if not remedy.is_taken:
            words = Content.assemble("    ", (f"{marks.dot}  {plain_text(remedy.text)}", "$muted"))
            lines += hanging(words, width, 7)
    return lines


class FindingsView(Vertical):
    """Rows are kept from plan to plan, so that a button keeps the focus while figures arrive."""

    DEFAULT_CSS = """
    FindingsView { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heading = TextLines()
        self._texts: list[TextLines] = []
        self._buttons: list[RemedyButton] = []
        self._shown: tuple[PlanState, int] | None = None

    def compose(self) -> ComposeResult:
        yield self._heading

    def show(self, state: PlanState, width: int) -> None:
        """Draw the findings of a state in `width` cells; as soon as there are rows to draw them in."""
        self._shown = state, width
        if self.children:
            self._draw(state, width)

    def on_mount(self) -> None:
        if self._shown is not None:
            self._draw(*self._shown)

    def _draw(self, state: PlanState, width: int) -> None:
        findings = state_findings(state)
        self.display = bool(findings) or state.plan is not None
        if findings:
            title = Content.styled(trn("{n} finding", "{n} findings", len(findings)), "bold")
        else:
            nothing = tr("no problems found")
            title = Content.assemble((f"{marks.ok} ", "$success"), (nothing, "$muted"))
        self._heading.show(hanging(title, width, 2))
        before = state.plan if not state.reading.findings else None
        place, number, numbered = 0, 0, len(numbered_remedies(findings))
        for index, finding in enumerate(findings):
            if index == len(self._texts):
                self._texts.append(TextLines())
            place = self._put(self._texts[index], place, finding_lines(finding, width))
            for remedy in finding.remedies:
                if remedy.is_taken and number < numbered:
                    number += 1
                    if number > len(self._buttons):
                        self._buttons.append(RemedyButton(number))
                    after = state.reading.effects.get(effect_key(remedy.changes))
                    effect = None if before is None or after is None else effect_words(before, after)
                    place = self._put(self._buttons[number - 1], place, remedy_lines(number, remedy, effect, width))
        for row in (*self._texts[len(findings) :], *self._buttons[number:]):
            row.display = False

    def _put(self, row: TextLines, place: int, lines: list[Content]) -> int:
        """Show a row in its place below the heading; returns the next place."""
        if row.parent is None:
            self.mount(row)
        if row in self.children and self.children[place + 1] is not row:
            self.move_child(row, after=place)
        row.display = True
        row.show(lines)
        return place + 1
