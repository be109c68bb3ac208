"""The plan as a few lines of text, numbers first: what headless shows before it starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from trainwiz.core.plain import plain_text
from trainwiz.core.plan.result import Plan
from trainwiz.tui.figures import count, deviation, duration_range, gib, short_count, size
from trainwiz.tui.output import labelled, paint
from trainwiz.tui.plan_words import length_words, trained_words, unknown_time_words

GAP = "     "

VERDICTS: dict[str, tuple[str, str, str]] = {
    "fits": ("✓", "fits", "good"),
    "tight": ("!", "tight", "warning"),
    "does_not_fit": ("✗", "does not fit", "error"),
}
TIME_WORDS: dict[str, str] = {
    "implausible": "! implausible",
    "impossible": "✗ impossible",
    "idle": "! the GPU would mostly wait",
}


def plan_lines(plan: Plan, stream: TextIO | None = None) -> list[str]:
    """Plan, Memory with Disk and Time; findings are printed by their own function."""
    target = stream or sys.stdout
    return [
        labelled("Plan", f"{model_text(plan)} · {data_text(plan)} · {batch_text(plan)}"),
        labelled("Memory", GAP.join([memory_text(plan, target), disk_text(plan, target), f"Time {time_text(plan)}"])),
    ]


def model_text(plan: Plan) -> str:
    """ "esm2-tiny (0.9M)", "mistral-7b (7.3B, 42.0M of them trained)"."""
    model = plan.model
    if not model.parameters:
        return plain_text(model.name, 60)
    trained = trained_words(model.parameters, model.trainable_parameters)
    return f"{plain_text(model.name, 60)} ({', '.join(filter(None, (short_count(model.parameters), trained)))})"


def data_text(plan: Plan) -> str:
    """ "512 rows of sample-proteins"."""
    sources = plan.config.data.sources
    name = plain_text(Path(sources[0].name).name or sources[0].name, 40)
    if len(sources) > 1:
        name += f" and {len(sources) - 1} more"
    data = plan.extra.get("data")
    rows = data.get("rows") if isinstance(data, dict) else None
    return f"{count(rows)} rows of {name}" if isinstance(rows, int) else name


def batch_text(plan: Plan) -> str:
    """ "16 × 4 = 64 sequences, 8,192 tokens a step"; the processes stand between when there are several."""
    batch = plan.batch
    factors = [batch.micro_batch, batch.accumulation] + ([batch.world_size] if batch.world_size > 1 else [])
    product = " × ".join(count(factor) for factor in factors)
    off = f" ({deviation(batch.deviation)} of the target)" if batch.deviation else ""
    sequences = "sequence" if batch.effective_samples == 1 else "sequences"
    return (
        f"{product} = {count(batch.effective_samples)} {sequences}, {count(batch.effective_tokens)} tokens a step{off}"
    )


def lengths_text(plan: Plan) -> str:
    """ "up to 256 source and 64 target tokens each"; "" for a task without targets."""
    return length_words(plan.task, plan.batch.sequence_length, plan.config.batch.target_length)


def memory_text(plan: Plan, stream: TextIO) -> str:
    """ "0.6 of 23 GiB host RAM   ✓ fits", or "... on GPU 0 · RTX 3080 10GB"."""
    memory = plan.memory
    if memory.verdict is None and memory.allocated_bytes == 0:
        return "unknown (the size of the model is not known)"
    capacity = f" of {gib(memory.capacity_bytes)}" if memory.capacity_bytes is not None else ""
    device = plain_text(memory.device)
    on = " " if device == "host RAM" else " on "
    return f"{gib(memory.device_used_bytes)}{capacity} GiB{on}{device}   {verdict(plan, stream)}".rstrip()


def verdict(plan: Plan, stream: TextIO) -> str:
    """A mark and a word: colour is never the only carrier."""
    if plan.memory.verdict is None:
        return ""
    mark, word, style = VERDICTS[plan.memory.verdict]
    return paint(f"{mark} {word}", style, stream)


def disk_text(plan: Plan, stream: TextIO) -> str:
    memory = plan.memory
    text = f"Disk {size(memory.disk_bytes)}"
    if memory.disk_capacity_bytes is None:
        return text
    enough = memory.disk_bytes <= memory.disk_capacity_bytes
    word = paint("✓", "good", stream) if enough else paint("✗ too little", "error", stream)
    return f"{text}   {word}"


def time_text(plan: Plan) -> str:
    """ "40 to 70 s"; a word where it cannot be."""
    if plan.time.total_low_s is None or plan.time.total_high_s is None:
        return unknown_time_words(plan.time.steps, plan.time.step_s, plan.model.parameters is not None)
    word = TIME_WORDS.get(plan.time.verdict or "")
    return duration_range(plan.time.total_low_s, plan.time.total_high_s) + (f"   {word}" if word else "")
