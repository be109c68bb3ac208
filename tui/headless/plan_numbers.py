"""What a run would be, one subject a line: the numbers of `trainwiz plan`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime

from trainwiz.core.plain import plain_text
from trainwiz.core.plan.result import Plan
from trainwiz.tui.figures import count, duration_range, gib, percent, size
from trainwiz.tui.headless.plan_text import batch_text, data_text, lengths_text, memory_text, model_text, time_text
from trainwiz.tui.output import labelled, paint
from trainwiz.tui.plan_words import (
    energy_words,
    finish_words,
    need_words,
    needed_bytes,
    pace_words,
    padding_words,
    source_words,
    time_part_words,
    token_words,
)

SMALL_PART = 0.005
SMALL_SHARE = 0.01


def number_lines(plan: Plan, now: datetime, *, verbose: bool = False) -> list[str]:
    """The lines; `now` is when the run would start, `verbose` adds what host RAM is made of."""
    memory = plan.memory
    lines = [
        labelled("Profile", plain_text(plan.profile or "none")),
        labelled("Machine", machine_text(plan)),
        labelled("Plan", f"{model_text(plan)} · {data_text(plan)}"),
        *_under("Batch", batch_lines(plan)),
        *_under("Memory", memory_lines(plan)),
        labelled("Host RAM", of_capacity(memory.host_ram_bytes, memory.host_ram_capacity_bytes)),
    ]
    if verbose and memory.host_ram_parts:
        lines.append(labelled("", parts_text(memory.host_ram_parts)))
    return [
        *lines,
        labelled("Disk", of_capacity(memory.disk_bytes, memory.disk_capacity_bytes)),
        *_under("Time", time_lines(plan, now)),
    ]


def _under(label: str, texts: Iterator[str]) -> list[str]:
    """The first text beside the label, the others below it; empty ones left out."""
    return [labelled("" if index else label, text) for index, text in enumerate(text for text in texts if text)]


def machine_text(plan: Plan) -> str:
    machine = plan.machine
    note = " (from the catalogue, not this machine)" if machine.hypothetical else ""
    return plain_text(machine.description or f"{machine.cpu_cores} cores") + note


def batch_lines(plan: Plan) -> Iterator[str]:
    """Product and tokens, lengths, real tokens, padding."""
    batch = plan.batch
    yield batch_text(plan)
    yield lengths_text(plan)
    if batch.real_tokens is not None and batch.effective_tokens:
        aim = f", aimed at {count(batch.target_real_tokens)}" if batch.target_real_tokens is not None else ""
        yield f"of them real {count(batch.real_tokens)} ({percent(batch.real_tokens / batch.effective_tokens)}){aim}"
    padding = padding_words(batch.effective_tokens, batch.padded_tokens, batch.padding_waste, batch.arranged_waste)
    yield "; ".join(padding)


def memory_lines(plan: Plan) -> Iterator[str]:
    """Peak and verdict, interval and where it comes from, what it is made of, the peak of evaluation."""
    memory = plan.memory
    yield memory_text(plan, sys.stdout)
    if memory.device_used_bytes:
        source = plain_text(source_words(memory.tier, memory.basis), 300)
        yield f"between {gib(memory.low_bytes)} and {gib(memory.high_bytes)}, {source}"
        yield f"peak: {plain_text(memory.peak_moment)}; {parts_text(memory.breakdown)}"
        needed = needed_bytes(memory.breakdown)
        shown, kind = memory.device_used_bytes, plan.config.engine.device
        yield need_words(memory.device, needed, shown, memory.capacity_bytes, kind)
        if memory.evaluation_bytes is not None:
            yield f"while evaluating {size(memory.evaluation_bytes)}"
    yield plain_text(memory.waiting, 300)


def time_lines(plan: Plan, now: datetime) -> Iterator[str]:
    """Total and when it is done, steps and pace, parts of the total, tokens, energy."""
    time = plan.time
    yield "   ".join(filter(None, (time_text(plan), finish_words(time.total_low_s, time.total_high_s, now))))
    if time.step_low_s is not None:
        steps = f"{count(time.steps)} {'step' if time.steps == 1 else 'steps'} ×"
        pace = (
            f"{steps if time.steps is not None else 'a step takes'} {duration_range(time.step_low_s, time.step_high_s)}"
        )
        peak = f", {percent(time.fraction_of_peak)} of the peak" if time.fraction_of_peak is not None else ""
        start = ""
        if time.start_high_s and time.total_high_s and time.start_high_s > SMALL_SHARE * time.total_high_s:
            start = f"; start and end {duration_range(time.start_low_s, time.start_high_s)} of it"
        yield f"{pace}{peak}, {plain_text(pace_words(time.basis, time.basis_text), 300)}{start}"
    parts = time_part_words(time.total_s, time.evaluation_s, time.generation_s, time.saving_s)
    if parts:
        yield f"of it {', '.join(parts)}"
    yield token_words(time.total_tokens, time.real_tokens)
    yield energy_words(
        time.energy_low_kwh, time.energy_high_kwh, time.energy_cost_low, time.energy_cost_high, time.currency
    )


def parts_text(breakdown: Mapping[str, int]) -> str:
    """The largest parts of the peak: "weights 1.2, activations 2.9"."""
    total = sum(breakdown.values())
    parts = sorted(breakdown.items(), key=lambda part: -part[1])
    return ", ".join(f"{plain_text(name)} {size(amount)}" for name, amount in parts if amount > SMALL_PART * total)


def of_capacity(needed: int, capacity: int | None) -> str:
    if capacity is None:
        return f"{size(needed)}, free space unknown"
    mark = paint("✓ fits", "good", sys.stdout) if needed <= capacity else paint("✗ too little", "error", sys.stdout)
    return f"{size(needed)} of {size(capacity)}   {mark}"
