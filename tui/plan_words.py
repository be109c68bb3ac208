"""Phrases about plans and imports that the command and the wizard share. Values in, plain text out."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr, tr_as, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.text import (
    amount_range,
    count,
    duration,
    duration_range,
    epochs,
    gib,
    percent,
    short_count,
    size,
    span,
)

if TYPE_CHECKING:
    from trainwiz.core.importing.report import Imported, Renamed, Unknown
    from trainwiz.core.plan.fit import Fit
    from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan


# What became of the settings of an import, as rows of texts: the command and the wizard show the same.

LONGEST_VALUE = 40
LONGEST_NAME = 60


def part_words(part: Imported) -> str:
    from trainwiz.core.importing.report import KIND_WORDS

    return f"{plain_text(part.file)} ({tr(KIND_WORDS[part.kind])})"


def report_sections(merged: Imported) -> list[tuple[str, int, list[list[str]]]]:
    """(title, how many cells of a row stand in the file, rows) of what an import has. Rows end with their place; those
    of what was dropped are a reason and its settings, for there are few reasons."""
    from trainwiz.tui.commands.profiles import value_words

    reasons: dict[str, list[str]] = {}
    for one in merged.dropped:
        reasons.setdefault(plain_text(tr(one.why)), []).append(f"{_name(one.name)} {_value(one.value)}".rstrip())
    mapped = [
        [_name(one.name), _value(one.value), f"→ {one.key}", value_words(one.set_to), _place(merged, one)]
        for one in merged.mapped
    ]
    renamed = [[_name(one.old), f"→ {_name(one.new)}", _place(merged, one)] for one in merged.renamed]
    unknown = [[_name(one.name), _value(one.value), _place(merged, one)] for one in merged.unknown]
    sections = [
        (trn("Mapped: {n} setting", "Mapped: {n} settings", len(mapped)), 2, mapped),
        (trn("Renamed: {n} old name", "Renamed: {n} old names", len(renamed)), 1, renamed),
        (
            trn("Dropped: {n} setting", "Dropped: {n} settings", len(merged.dropped)),
            0,
            [[why, ", ".join(names)] for why, names in reasons.items()],
        ),
        (trn("Unknown: {n} setting", "Unknown: {n} settings", len(unknown)), 2, unknown),
    ]
    return [section for section in sections if section[2]]


def _place(merged: Imported, one: Renamed | Unknown) -> str:
    several, line = len(merged.parts) > 1, one.line
    return plain_text(f"{one.file}:{line}" if several and line else one.file if several else f":{line}" if line else "")


def _name(name: str) -> str:
    return plain_text(name, LONGEST_NAME)


def _value(value: object) -> str:
    from trainwiz.core.importing.report import shown

    return plain_text(shown(value), LONGEST_VALUE)


# Phrases about a plan that the command, the wizard and the plan card share. Values in, plain text out.

SMALL_SHARE = 0.01
"""A part of the time below this share of the whole is not worth a word."""
SMALL_GAIN = 0.01
"""Nor is a pace that is higher by less."""
CLOCK_S = 20 * 3600.0
"""Up to here a time of day says when; above it the day is needed."""
WEEK_S = 6 * 86400.0

SOURCES = (mark("analytic"), mark("traced"), mark("measured"), mark("formula"))
"""Where figures come from, in one word; plans and --json have the word itself."""

MOST = 0.5
"""Fixed tables of positions and the like are not worth a word; adapters are."""


def trained_words(parameters: float | None, trainable: float | None) -> str:
    """ "42.0M of them trained, 0.6 %"; "" where most are, or where it is not known."""
    if not parameters or trainable is None or trainable > MOST * parameters:
        return ""
    return tr(
        "{count} trainable, {share}",
        count=short_count(trainable),
        share=percent(trainable / parameters),
    )


def length_words(task: str, source: int | None, target: int | None) -> str:
    if task != "seq2seq" or not source or not target:
        return ""
    return tr("up to {source} source and {target} target tokens each", source=f"{source:,}", target=f"{target:,}")


def method_words(plan: Plan) -> str:
    """What is about to be learnt, and at which rate: "fine-tunes the weights in ./model, learning rate 2e-05"."""
    rate = tr("learning rate {rate}", rate=f"{plan.config.training.learning_rate:g}")
    return f"{learnt_text(plan.model)}, {rate}" if plan.model.learnt else learnt_text(plan.model)


def learnt_text(model: PlannedModel) -> str:
    """The same without the rate; nothing is claimed of a model that was not found."""
    return plain_text(model.learnt, 200) or tr("unknown until the model is found")


def run_words(plan: Plan) -> list[str]:
    """How long a run is, what was asked for first: ["120 steps", "0.4 epochs"], ["3 epochs", "412 steps"]."""
    steps, by_epochs = plan.time.steps, _is_by_epochs(plan)
    in_steps = [] if steps is None else [trn("{n} step", "{n} steps", steps, n=count(steps))]
    # As asked for: 412 steps of whole batches are a little more than 3 epochs.
    amount = plan.config.training.epochs if by_epochs else plan.time.epochs
    if amount is None:
        return in_steps
    in_epochs = [trn("{n} epoch", "{n} epochs", 1 if amount == 1 else 2, n=epochs(amount))]
    return [*in_epochs, *in_steps] if by_epochs else [*in_steps, *in_epochs]


def steps_words(plan: Plan) -> str:
    words = run_words(plan)
    if len(words) < 2:
        return "".join(words)
    steps, passes = words[::-1] if _is_by_epochs(plan) else words
    return f"{steps} ({passes})"


def _is_by_epochs(plan: Plan) -> bool:
    config = plan.config
    return config.training.epochs is not None and config.origin("training.max_steps").origin == "solved"


def memory_title(device: str) -> str:
    """What heads the memory that is computed in, by the `device` of the plan's memory: a card's, or the host's."""
    return tr_as("of the host", "Memory") if device == "host RAM" else tr("Memory")


def pace_words(time: TimePlan) -> str:
    """Where a pace comes from: "by published runs on such cards", "measured here on 2026-11-21 (probe)"."""
    return time.basis_text or tr("by {basis}", basis=tr(time.basis))


def unknown_time_words(steps: int | None, step_s: float | None, model_known: bool = True) -> str:
    if step_s is None:
        if model_known:
            return tr("unknown: no performance data for this device")
        return tr("unknown: the model size is unknown")
    return tr("unknown: the number of steps is unknown") if steps is None else tr("unknown")


def source_words(memory: MemoryPlan) -> str:
    """Where memory figures come from: "analytic (formulas)", "full trace", "measured here on 2026-11-21"."""
    tier, basis = memory.tier, memory.basis
    if not basis or tier in basis or tr(tier) in basis:
        return basis or tr(tier)
    return tr("{tier} ({basis})", tier=tr(tier), basis=basis)


def need_words(memory: MemoryPlan) -> str:
    """What decides whether it fits: "needs 17.1 GiB, at most 20.0 GiB"."""
    needed, most, capacity = memory.judged_bytes, memory.judged_high_bytes, memory.capacity_bytes
    if capacity is not None and needed > capacity:
        return tr("needs {needed}, {lacking} more than available", needed=size(needed), lacking=size(needed - capacity))
    return tr("needs {needed}, at most {most}", needed=size(needed), most=size(most))


def shown_words(memory: MemoryPlan, kind: str | None) -> str:
    """What a user will see, with its own range; "" where there is no nvidia-smi. `kind` is engine.device."""
    if kind in ("mps", "cpu"):
        return ""
    words = mark("nvidia-smi will show {shown}, between {low} and {high}")
    return tr(words, shown=size(memory.device_used_bytes), low=gib(memory.low_bytes), high=gib(memory.high_bytes))


def padding_words(batch: BatchPlan) -> list[str]:
    """What padding costs, and what it costs where rows are arranged otherwise.

    Where every row is computed at its full length, only the saving is worth a word.
    """
    padded, waste = batch.padded_tokens, batch.padding_waste
    if padded is None or waste is None:
        return []
    processed = tr("{count} processed, {share} padding", count=count(padded), share=percent(waste))
    words = [] if padded == batch.effective_tokens else [processed]
    if batch.arranged_waste is not None and waste - batch.arranged_waste >= SMALL_SHARE:
        share = percent(batch.arranged_waste)
        words.append(tr("{share} padding if the rows of a step were grouped by length", share=share))
    elif batch.drawn_waste is not None and batch.drawn_waste - waste >= SMALL_SHARE:
        words.append(tr("{share} padding in sampling order", share=percent(batch.drawn_waste)))
    return words


def finish_words(low_s: float | None, high_s: float | None, now: datetime) -> str:
    """When a run that starts now is done: "finishes 23:50 to 00:20", "finishes 2026-12-02 to 2026-12-18"."""
    if low_s is None or high_s is None:
        return ""
    try:
        # By the clock of the zone at that time, which may be set forward or back until then.
        first, last = (datetime.fromtimestamp(now.timestamp() + seconds, now.tzinfo) for seconds in (low_s, high_s))
    except (OverflowError, ValueError, OSError):
        return ""
    form = "%H:%M" if high_s < CLOCK_S else "%Y-%m-%d %H:%M" if high_s < WEEK_S else "%Y-%m-%d"
    early, late = first.strftime(form), last.strftime(form)
    return tr("finishes {range}", range=span(early, late))


def time_details(time: TimePlan) -> list[str]:
    """What stands below the figures of the time: what arranging gains, parts beside steps, network, tokens, energy."""
    lines = []
    if time.pace_gain is not None and time.possible_pace_gain is not None and time.pace_gain >= 1 + SMALL_GAIN:
        form = mark("{gain}x faster from grouping by length ({possible}x at best)")
        lines.append(tr(form, gain=f"{time.pace_gain:.2f}", possible=f"{time.possible_pace_gain:.2f}"))
    beside = (
        (mark("evaluation {time}"), time.evaluation_s),
        (mark("generation {time}"), time.generation_s),
        (mark("saving {time}"), time.saving_s),
    )
    least_s = SMALL_SHARE * (time.total_s or math.inf)
    parts = [tr(part, time=duration(seconds)) for part, seconds in beside if seconds and seconds > least_s]
    if parts:
        lines.append(tr("including {parts}", parts=tr(", ").join(parts)))
    if network := network_words(time):
        lines.append(network)
    if time.total_tokens is not None:
        total, real = short_count(time.total_tokens), short_count(time.real_tokens)
        is_all = time.real_tokens in (None, time.total_tokens)
        lines.append(
            tr("{count} tokens", count=total)
            if is_all
            else tr("{count} tokens, {real} non-padding", count=total, real=real)
        )
    if time.energy_low_kwh is not None and time.energy_high_kwh is not None:
        energy = f"{amount_range(time.energy_low_kwh, time.energy_high_kwh)} kWh"
        if time.energy_cost_low is not None and time.energy_cost_high is not None:
            cost = amount_range(time.energy_cost_low, time.energy_cost_high)
            energy = tr(", ").join((energy, f"{cost} {plain_text(time.currency)}".rstrip()))
        lines.append(energy)
    return lines


def network_words(time: TimePlan) -> str:
    """What a step moves between the machines and how long that takes at worst; "" for a run on one."""
    if time.network_bytes is None or time.network_high_s is None or not time.network_gbit_s:
        return ""
    speed = tr("{speed} Gbit/s", speed=f"{time.network_gbit_s:g}")
    told = tr("{speed}, assumed: planning.network_gbit_s", speed=speed) if time.network_assumed else speed
    share = time.network_high_s / time.step_high_s if time.step_high_s else 0.0
    return tr(
        "network: each node sends {size} per step, up to {time} of it ({share} of a slow step; {told})",
        size=size(time.network_bytes),
        time=duration(time.network_high_s),
        share=percent(share),
        told=told,
    )


# A row of what fits, for a list.


def fit_words(fit: Fit) -> str:
    from trainwiz.core.plan.fit import METHOD_NAMES, passes_words

    plan, memory = fit.plan, fit.plan.memory
    parts = [tr(METHOD_NAMES[fit.method]), tr("{length} tokens", length=count(plan.batch.sequence_length))]
    if fit.cut:
        parts.append(tr("{share} of the rows truncated", share=percent(fit.cut)))
    parts.append(tr("{amount} of {whole} GiB", amount=gib(memory.needed_bytes), whole=gib(memory.capacity_bytes)))
    if memory.verdict == "tight":
        parts.append(tr("tight"))
    times, passes = duration_range(plan.time.total_low_s, plan.time.total_high_s), passes_words(fit.passes)
    return tr(", ").join([*parts, tr("{time} for {passes}", time=times, passes=passes)])
