"""The plan as a few lines of text, numbers first: what headless shows before it starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.result import Plan
from trainwiz.tui.figures import count, deviation, duration_range, gib, short_count, size
from trainwiz.tui.output import labelled, paint
from trainwiz.tui.plan_words import (
    length_words,
    memory_title,
    method_words,
    run_words,
    trained_words,
    unknown_time_words,
)

GAP = "     "

VERDICTS: dict[str, tuple[str, str, str]] = {
    "fits": ("✓", mark("fits"), "good"),
    "tight": ("!", mark("tight"), "warning"),
    "does_not_fit": ("✗", mark("does not fit"), "error"),
}
TIME_WORDS: dict[str, str] = {
    "implausible": mark("! implausible"),
    "impossible": mark("✗ impossible"),
    "idle": mark("! the GPU would mostly wait"),
}


def plan_lines(plan: Plan, stream: TextIO | None = None) -> list[str]:
    """Plan, Memory with Disk and Time; findings are printed by their own function."""
    target = stream or sys.stdout
    return [
        labelled(
            tr("Plan"),
            " · ".join(
                filter(None, (model_text(plan), data_text(plan), batch_text(plan), " = ".join(run_words(plan))))
            ),
        ),
        labelled(tr("Method"), method_words(plan)),
        labelled(
            memory_title(plan.memory.device),
            GAP.join([memory_text(plan, target), disk_text(plan, target), tr("Time {time}", time=time_text(plan))]),
        ),
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
    if any(one.code == "no_data_named" for one in plan.findings):
        return tr("no data named")
    sources = plan.config.data.sources
    name = plain_text(Path(sources[0].name).name or sources[0].name, 40)
    if len(sources) > 1:
        name = tr("{name} and {count} more", name=name, count=len(sources) - 1)
    data = plan.extra.get("data")
    rows = data.get("rows") if isinstance(data, dict) else None
    return tr("{rows} rows of {name}", rows=count(rows), name=name) if isinstance(rows, int) else name


def batch_text(plan: Plan) -> str:
    """ "16 × 4 = 64 sequences, 8,192 tokens a step"; the processes stand between when there are several."""
    batch = plan.batch
    factors = [batch.micro_batch, batch.accumulation] + ([batch.world_size] if batch.world_size > 1 else [])
    product = " × ".join(count(factor) for factor in factors)
    words = trn(
        "{product} = {n} sequence, {tokens} tokens a step",
        "{product} = {n} sequences, {tokens} tokens a step",
        batch.effective_samples,
        product=product,
        n=count(batch.effective_samples),
        tokens=count(batch.effective_tokens),
    )
    if not batch.deviation:
        return words
    return tr("{batch} ({deviation} of the target)", batch=words, deviation=deviation(batch.deviation))


def lengths_text(plan: Plan) -> str:
    """ "up to 256 source and 64 target tokens each"; "" for a task without targets."""
    return length_words(plan.task, plan.batch.sequence_length, plan.config.batch.target_length)


def memory_text(plan: Plan, stream: TextIO) -> str:
    """ "0.6 of 23 GiB host RAM   ✓ fits", or "... on GPU 0 · RTX 3080 10GB"."""
    memory = plan.memory
    if memory.verdict is None and memory.allocated_bytes == 0:
        return tr("unknown (the size of the model is not known)")
    amount = gib(memory.device_used_bytes)
    if memory.capacity_bytes is not None:
        amount = tr("{amount} of {whole}", amount=amount, whole=gib(memory.capacity_bytes))
    if memory.device == "host RAM":
        where = tr("{amount} GiB host RAM", amount=amount)
    else:
        where = tr("{amount} GiB on {device}", amount=amount, device=plain_text(memory.device))
    return f"{where}   {verdict(plan, stream)}".rstrip()


def verdict(plan: Plan, stream: TextIO) -> str:
    """A mark and a word: colour is never the only carrier."""
    if plan.memory.verdict is None:
        return ""
    sign, word, style = VERDICTS[plan.memory.verdict]
    return paint(f"{sign} {tr(word)}", style, stream)


def disk_text(plan: Plan, stream: TextIO) -> str:
    memory = plan.memory
    text = tr("Disk {size}", size=size(memory.disk_bytes))
    if memory.disk_capacity_bytes is None:
        return text
    enough = memory.disk_bytes <= memory.disk_capacity_bytes
    word = paint("✓", "good", stream) if enough else paint(tr("✗ too little"), "error", stream)
    return f"{text}   {word}"


def time_text(plan: Plan) -> str:
    """ "40 to 70 s"; a word where it cannot be."""
    if plan.time.total_low_s is None or plan.time.total_high_s is None:
        return unknown_time_words(plan.time.steps, plan.time.step_s, plan.model.parameters is not None)
    word = TIME_WORDS.get(plan.time.verdict or "")
    return duration_range(plan.time.total_low_s, plan.time.total_high_s) + (f"   {tr(word)}" if word else "")
