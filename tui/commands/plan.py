"""`trainwiz plan`: the preview alone, as text or as JSON. Writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from trainwiz.core.config import OriginKind
from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.findings import sort_findings
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Choice, Plan
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.figures import count, duration_range, gib, percent, size
from trainwiz.tui.headless.plan_text import batch_text, data_text, lengths_text, memory_text, model_text, time_text
from trainwiz.tui.headless.waiting import Waiting
from trainwiz.tui.output import labelled, paint, say, say_findings, say_json, say_labelled
from trainwiz.tui.plan_words import time_part_words

ORIGIN_WORDS: dict[OriginKind, str] = {
    "detected": "detected",
    "profile": "profile",
    "you": "you",
    "solved": "solved",
}
SMALL_PART = 0.005
WIDEST_VALUE = 24
SMALL_SHARE = 0.01


def run_plan(values: Mapping[str, Any], *, verbose: bool) -> int:
    """`values` are the choices as typer read them. Errors in the plan are shown and are not an exit code."""
    choices = parse_choices(values)
    with Waiting("reading machine, model and data"):
        plan = plan_run(choices.request)
    if choices.json:
        say_json(plan.to_json())
        return EXIT_FINISHED
    for line in number_lines(plan):
        say_labelled(line)
    for line in choice_lines(plan, verbose=verbose):
        say(line)
    findings = sort_findings(plan.findings)
    if findings:
        say()
        say_findings(findings)
    return EXIT_FINISHED


def number_lines(plan: Plan) -> list[str]:
    """What the run would be, one subject a line."""
    memory, time = plan.memory, plan.time
    lines = [
        labelled("Profile", plain_text(plan.profile or "none")),
        labelled("Machine", machine_text(plan)),
        labelled("Plan", f"{model_text(plan)} · {data_text(plan)}"),
        labelled("Batch", batch_text(plan)),
    ]
    if lengths_text(plan):
        lines.append(labelled("", lengths_text(plan)))
    if plan.batch.real_tokens is not None and plan.batch.effective_tokens:
        share = percent(plan.batch.real_tokens / plan.batch.effective_tokens)
        lines.append(labelled("", f"of them real {count(plan.batch.real_tokens)} ({share})"))
    spread = f"between {gib(memory.low_bytes)} and {gib(memory.high_bytes)}, {memory.tier}"
    lines += [
        labelled("Memory", memory_text(plan, sys.stdout)),
        *([labelled("", f"{spread}; peak: {plain_text(memory.peak_moment)}")] if memory.allocated_bytes else []),
        *([labelled("", parts_text(memory.breakdown))] if memory.allocated_bytes else []),
        labelled("Host RAM", of_capacity(memory.host_ram_bytes, memory.host_ram_capacity_bytes)),
        labelled("Disk", of_capacity(memory.disk_bytes, memory.disk_capacity_bytes)),
        labelled("Time", time_text(plan)),
    ]
    if time.step_low_s is not None:
        steps = (
            f"{count(time.steps)} {'step' if time.steps == 1 else 'steps'} ×"
            if time.steps is not None
            else "a step takes"
        )
        pace = f"{steps} {duration_range(time.step_low_s, time.step_high_s)}"
        peak = f", {percent(time.fraction_of_peak)} of the peak" if time.fraction_of_peak is not None else ""
        start = ""
        if time.start_high_s and time.total_high_s and time.start_high_s > SMALL_SHARE * time.total_high_s:
            start = f"; start and end {duration_range(time.start_low_s, time.start_high_s)} of it"
        lines.append(labelled("", f"{pace}{peak}, by {time.basis}{start}"))
    parts = time_part_words(time.total_s, time.evaluation_s, time.generation_s, time.saving_s)
    if parts:
        lines.append(labelled("", f"of it {', '.join(parts)}"))
    return lines


def machine_text(plan: Plan) -> str:
    machine = plan.machine
    note = " (from the catalogue, not this machine)" if machine.hypothetical else ""
    return plain_text(machine.description or f"{machine.cpu_cores} cores") + note


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


def choice_lines(plan: Plan, *, verbose: bool) -> list[str]:
    """The choices with who made them; all of them with `verbose`, else those that were not simply given."""
    shown = [choice for choice in plan.choices if verbose or choice.origin in ("detected", "solved", "you")]
    if not shown:
        return []
    keys = max(len(choice.key) for choice in shown)
    values = min(WIDEST_VALUE, max(len(value_text(choice)) for choice in shown))
    lines = ["", "Choices"]
    lines += [choice_line(choice, keys, values) for choice in shown]
    hidden = len(plan.choices) - len(shown)
    if hidden:
        lines.append(f"  {hidden} more from the profile: --verbose")
    return lines


def choice_line(choice: Choice, key_width: int, value_width: int) -> str:
    reason = plain_text(choice.reason)
    value = value_text(choice)
    return f"  {choice.key:<{key_width}}  {value:<{value_width}}  {ORIGIN_WORDS[choice.origin]:<8}  {reason}".rstrip()


def value_text(choice: Choice) -> str:
    return plain_text(choice.value if isinstance(choice.value, str) else json.dumps(choice.value, default=str), 60)
