"""The plan beside the form: batch, memory, host RAM, disk, time and findings, as text with few colours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import GIB, count, deviation, duration_range, gib, percent, size
from trainwiz.tui.plan_words import (
    energy_words,
    finish_words,
    length_words,
    need_words,
    needed_bytes,
    pace_words,
    padding_words,
    source_words,
    time_part_words,
    token_words,
    unknown_time_words,
)
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:  # the plan's own module loads pydantic, which waits until the first frame is drawn
    from trainwiz.core.findings import Finding, Remedy
    from trainwiz.core.plan.result import Plan

INDENT = "  "
MAX_REMEDIES = 9
LONGEST_TEXT = 300
UNKNOWN_SIZE = "unknown: the size of the model is not known"
TOO_LONG = "takes_"
"""How the codes of findings about the total time begin."""

SEVERITY_STYLES = {"error": "$error", "warning": "$warning", "note": "$muted"}


def numbered_remedies(findings: tuple[Finding, ...]) -> list[Remedy]:
    """The remedies that a digit applies: number 1 is the first of the list. At most nine."""
    return [remedy for finding in findings for remedy in finding.remedies if remedy.changes][:MAX_REMEDIES]


def severity_mark(severity: str, marks: Marks) -> str:
    return {"error": marks.bad, "warning": marks.tight}.get(severity, marks.dot)


def memory_verdict(plan: Plan, marks: Marks) -> Content:
    """Mark and words, coloured: "✓ fits"."""
    words = {
        "fits": (marks.ok, "fits", "$success"),
        "tight": (marks.tight, "tight", "$warning"),
        "does_not_fit": (marks.bad, "does not fit", "$error"),
    }
    if plan.memory.verdict is None:
        return Content.styled("capacity unknown", "$muted")
    mark, word, style = words[plan.memory.verdict]
    return Content.styled(f"{mark} {word}", style)


def batch_product(plan: Plan, marks: Marks) -> str:
    batch = plan.batch
    processes = "process" if batch.world_size == 1 else "processes"
    sequences = "sequence" if batch.effective_samples == 1 else "sequences"
    return (
        f"{count(batch.micro_batch)} {marks.times} {count(batch.accumulation)} {marks.times} "
        f"{batch.world_size} {processes}  =  {count(batch.effective_samples)} {sequences}"
    )


def memory_bar(plan: Plan, width: int, marks: Marks) -> Content:
    """The capacity as a bar: filled up to the low estimate, hatched up to the high one."""
    memory = plan.memory
    capacity = memory.capacity_bytes
    if not capacity:
        return Content.styled(marks.empty * width, "$track")
    low = min(width, round(width * memory.low_bytes / capacity))
    high = min(width, max(low, round(width * memory.high_bytes / capacity)))
    if memory.high_bytes > 0:
        low, high = max(low, 1), max(high, 1)
    colour = {"fits": "$accent", "tight": "$warning", "does_not_fit": "$error"}.get(memory.verdict or "", "$accent")
    return Content.assemble(
        (marks.full * low, colour), (marks.range * (high - low), colour), (marks.empty * (width - high), "$track")
    )


def panel_content(plan: Plan, width: int, marks: Marks, now: datetime | None = None) -> Content:
    """The whole panel in `width` cells; lines that are too long go on beneath their text. `now` dates the end."""
    lines = [*_batch(plan, marks), *_memory(plan, width, marks), *_time(plan, marks, now)]
    return hanging([(2 * len(INDENT), line) for line in lines], width)


def hanging(lines: list[tuple[int, Content]], width: int) -> Content:
    """Paragraphs wrapped to `width` cells; lines after the first are indented."""
    wrapped: list[Content] = []
    for indent, content in lines:
        first, *more = content.wrap(max(10, width))
        wrapped.append(first)
        if not more:
            continue
        rest = _left_stripped(content[len(first.rstrip().plain) :])
        wrapped += [Content(" " * indent) + piece for piece in rest.wrap(max(10, width - indent))]
    return Content("\n").join(wrapped)


def _left_stripped(content: Content) -> Content:
    spaces = len(content.plain) - len(content.plain.lstrip())
    return content[spaces:] if spaces else content


def _heading(text: str, note: str = "") -> Content:
    return Content.assemble((text, "bold"), (note, "$muted"))


def _batch(plan: Plan, marks: Marks) -> Iterator[Content]:
    batch = plan.batch
    yield _heading("Batch")
    yield Content(INDENT + batch_product(plan, marks))
    off = deviation(batch.deviation, marks.minus)
    target = off if off == "exact" or not off else f"{off} of target"
    yield Content.assemble(f"{INDENT}{count(batch.effective_tokens)} tokens a step", (f"   {target}", "$muted"))
    lengths = length_words(plan.task, batch.sequence_length, plan.config.batch.target_length)
    if lengths:
        yield Content.styled(INDENT + lengths, "$muted")
    if batch.real_tokens is not None and batch.effective_tokens:
        share = percent(batch.real_tokens / batch.effective_tokens)
        yield Content.assemble((f"{INDENT}of them real {count(batch.real_tokens)}   {share}", "$muted"))
    yield from _muted(
        *padding_words(batch.effective_tokens, batch.padded_tokens, batch.padding_waste, batch.arranged_waste)
    )
    yield Content()


def _memory(plan: Plan, width: int, marks: Marks) -> Iterator[Content]:
    memory = plan.memory
    capacity = "" if memory.capacity_bytes is None else f" {marks.dot} {gib(memory.capacity_bytes)} GiB"
    yield _heading("Memory", f" {marks.dot} {plain_text(memory.device)}{capacity}")
    if plan.model.parameters is None:
        # Zeros would read as figures, and "fits" as a verdict.
        yield Content.styled(f"{INDENT}{UNKNOWN_SIZE}", "$muted")
        yield Content()
        return
    verdict = memory_verdict(plan, marks)
    bar = memory_bar(plan, max(8, width - len(INDENT) - verdict.cell_length - 2), marks)
    yield Content.assemble(INDENT, bar, "  ", verdict)
    yield Content.assemble(
        f"{INDENT}{gib(memory.device_used_bytes)} GiB",
        (f"   between {gib(memory.low_bytes)} and {gib(memory.high_bytes)}", "$muted"),
    )
    yield from _muted(source_words(memory.tier, memory.basis), memory.waiting)
    yield Content.styled(f"{INDENT}peak: {plain_text(memory.peak_moment)}", "$muted")
    parts = sorted(memory.breakdown.items(), key=lambda part: -part[1])
    shown = [f"{plain_text(name)} {gib(amount)}" for name, amount in parts if amount >= 0.005 * GIB]
    while len("  ".join(shown)) > width - len(INDENT):
        shown.pop()
    if shown:
        yield Content.styled(INDENT + "  ".join(shown), "$muted")
    needed, kind = needed_bytes(memory.breakdown), plan.config.engine.device
    words = need_words(memory.device, needed, memory.device_used_bytes, memory.capacity_bytes, kind)
    yield from _muted(words)
    if memory.evaluation_bytes is not None:
        yield from _muted(f"{size(memory.evaluation_bytes)} while evaluating")
    yield Content()
    yield _capacity_line("Host RAM", memory.host_ram_bytes, memory.host_ram_capacity_bytes, marks)
    yield _capacity_line("Disk", memory.disk_bytes, memory.disk_capacity_bytes, marks)
    yield Content()


def _muted(*texts: str) -> Iterator[Content]:
    """Quiet lines; empty ones left out."""
    for text in texts:
        if text:
            yield Content.styled(INDENT + plain_text(text, LONGEST_TEXT), "$muted")


def _capacity_line(label: str, needed: int, capacity: int | None, marks: Marks) -> Content:
    if capacity is None:
        return Content.assemble((f"{label:<9}", "bold"), f"{gib(needed):>7} GiB", ("   free space unknown", "$muted"))
    fits = needed <= capacity
    verdict = (f"{marks.ok} fits", "$success") if fits else (f"{marks.bad} too little", "$error")
    return Content.assemble((f"{label:<9}", "bold"), f"{gib(needed):>7} of {gib(capacity):>7} GiB   ", verdict)


def time_line(plan: Plan) -> Content:
    """The total as a range; a mark and a word where it is not plausible."""
    total = duration_range(plan.time.total_low_s, plan.time.total_high_s)
    words = {"implausible": ", implausible", "impossible": ", impossible", "idle": ", mostly waiting"}
    word = words.get(plan.time.verdict or "", "")
    if word or any(finding.code.startswith(TOO_LONG) for finding in plan.findings):
        return Content.styled(f"! {total}{word}", "$warning")
    return Content(total)


def _time(plan: Plan, marks: Marks, now: datetime | None) -> Iterator[Content]:
    time = plan.time
    yield _heading("Time")
    step = duration_range(time.step_low_s, time.step_high_s)
    if time.total_low_s is None:
        unknown = unknown_time_words(time.steps, time.step_s)
        yield from _muted(UNKNOWN_SIZE if plan.model.parameters is None else unknown)
        if time.step_s is not None:
            yield from _muted(f"a step takes {step}")
        yield Content()
        return
    done = finish_words(time.total_low_s, time.total_high_s, now) if now is not None else ""
    yield Content.assemble(INDENT, time_line(plan))
    yield from _muted(done, f"{count(time.steps)} steps {marks.times} {step}")
    source = pace_words(time.basis, time.basis_text)
    peak = f"{percent(time.fraction_of_peak)} of the device's peak, " if time.fraction_of_peak is not None else ""
    yield from _muted(peak + source)
    parts = time_part_words(time.total_s, time.evaluation_s, time.generation_s, time.saving_s)
    if parts:
        yield from _muted(f"of it {', '.join(parts)}")
    costs = energy_words(
        time.energy_low_kwh, time.energy_high_kwh, time.energy_cost_low, time.energy_cost_high, time.currency
    )
    yield from _muted(token_words(time.total_tokens, time.real_tokens), costs)
    yield Content()


def finding_lines(findings: tuple[Finding, ...], marks: Marks) -> list[tuple[int, Content]]:
    """Findings with their numbered remedies: (cells of hanging indent, text) for each paragraph."""
    if not findings:
        return [(0, Content.assemble((f"{marks.ok} ", "$success"), ("nothing stands against this plan", "$muted")))]
    noun = "finding" if len(findings) == 1 else "findings"
    lines: list[tuple[int, Content]] = [(0, Content.styled(f"{len(findings)} {noun}", "bold"))]
    number = 0
    for finding in findings:
        mark = severity_mark(finding.severity, marks)
        style = SEVERITY_STYLES[finding.severity]
        lines.append((4, Content.assemble(INDENT, (mark, style), " ", plain_text(finding.message))))
        for remedy in finding.remedies:
            numbered = bool(remedy.changes) and number < MAX_REMEDIES
            number += numbered
            key = (f"{number}  ", "$accent") if numbered else (f"{marks.dot}  ", "$muted")
            lines.append((7, Content.assemble("    ", key, (plain_text(remedy.text), "$muted"))))
    return lines
