"""Phrases about plans and imports that the command and the wizard share. Values in, plain text out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from trainwiz.core.language import language, mark, tr, tr_as, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.text import amount_range, count, duration, duration_range, epochs, gib, percent, short_count, size

if TYPE_CHECKING:
    from trainwiz.core.importing.report import Imported, Renamed, Unknown
    from trainwiz.core.plan.fit import Fit
    from trainwiz.core.plan.result import Plan, PlannedModel, TimePlan


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
SOON = "%a %d %b %H:%M"
WEEK_S = 6 * 86400.0
YEARS_S = 3 * 365.25 * 86400.0

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


def time_part_words(
    total_s: float | None, evaluation_s: float | None, generation_s: float | None, saving_s: float | None
) -> list[str]:
    """What the total holds beside steps: ["evaluation 12 min", "generation 3.2 h"]; small parts are left out."""
    parts = (
        (mark("evaluation {time}"), evaluation_s),
        (mark("generation {time}"), generation_s),
        (mark("saving {time}"), saving_s),
    )
    return [
        tr(part, time=duration(seconds))
        for part, seconds in parts
        if seconds and total_s and seconds > SMALL_SHARE * total_s
    ]


def memory_title(device: str) -> str:
    """What heads the memory that is computed in, by the `device` of the plan's memory: a card's, or the host's."""
    return tr_as("of the host", "Memory") if device == "host RAM" else tr("Memory")


def pace_words(basis: str, text: str) -> str:
    """Where a pace comes from: "by published runs on such cards", "measured here on 2026-11-21 (probe)"."""
    return text or tr("by {basis}", basis=tr(basis))


def unknown_time_words(steps: int | None, step_s: float | None, model_known: bool = True) -> str:
    if step_s is None:
        if model_known:
            return tr("unknown: no performance data for this device")
        return tr("unknown: the model size is unknown")
    return tr("unknown: the number of steps is unknown") if steps is None else tr("unknown")


def source_words(tier: str, basis: str) -> str:
    """Where memory figures come from: "analytic (formulas)", "traced by layers", "measured here on 2026-11-21"."""
    if not basis or tier in basis or tr(tier) in basis:
        return basis or tr(tier)
    return tr("{tier} ({basis})", tier=tr(tier), basis=basis)


def need_words(needed: float | None, most: float | None, capacity: float | None = None) -> str:
    """What decides whether it fits: "needs 17.1 GiB, at most 20.0 GiB"."""
    if needed is None or most is None:
        return ""
    if capacity is not None and needed > capacity:
        return tr("needs {needed}, {lacking} more than available", needed=size(needed), lacking=size(needed - capacity))
    return tr("needs {needed}, at most {most}", needed=size(needed), most=size(most))


def shown_words(used: float | None, low: float | None, high: float | None, kind: str | None = "cuda") -> str:
    """What a user will see, with its own range; "" where there is no nvidia-smi. `kind` is engine.device."""
    if kind in ("mps", "cpu") or used is None or low is None or high is None:
        return ""
    words = mark("nvidia-smi will show {shown}, between {low} and {high}")
    return tr(words, shown=size(used), low=gib(low), high=gib(high))


def padding_words(
    nominal: float | None,
    padded: float | None,
    waste: float | None,
    arranged: float | None,
    drawn: float | None = None,
) -> list[str]:
    """What padding costs: ["1,450,000 computed, 22 % padding", "4 % if a step's rows were arranged by length"], or, where
    they are, [..., "22 % if rows were not arranged by length"].

    `nominal` counts every row at its full length; where that is what is computed, only the saving is worth a word.
    """
    if padded is None or waste is None:
        return []
    words = (
        []
        if padded == nominal
        else [tr("{count} processed, {share} padding", count=count(padded), share=percent(waste))]
    )
    if arranged is not None and waste - arranged >= SMALL_SHARE:
        share = percent(arranged)
        if words:
            words.append(tr("{share} if the rows of a step were grouped by length", share=share))
        else:
            words.append(tr("{share} padding if the rows of a step were grouped by length", share=share))
    elif drawn is not None and drawn - waste >= SMALL_SHARE and waste == 0:
        words.append(tr("{share} if rows were padded in sampling order", share=percent(drawn)))
    elif drawn is not None and drawn - waste >= SMALL_SHARE:
        words.append(tr("{share} if rows were not grouped by length", share=percent(drawn)))
    return words


def gain_words(gain: float | None, possible: float | None) -> str:
    if gain is None or possible is None or gain < 1 + SMALL_GAIN:
        return ""
    return tr(
        "{gain}x faster from grouping by length ({possible}x at best)",
        gain=f"{gain:.2f}",
        possible=f"{possible:.2f}",
    )


def token_words(total: int | None, real: int | None) -> str:
    """Tokens of the whole run: "240M tokens, 136M of them real"; "" where they are not known."""
    if total is None:
        return ""
    if real is None or real == total:
        return tr("{count} tokens", count=short_count(total))
    return tr("{count} tokens, {real} non-padding", count=short_count(total), real=short_count(real))


def finish_words(low_s: float | None, high_s: float | None, now: datetime) -> str:
    """When a run that starts now is done: "done 23:50 to 00:20", "done 2026-12-02 to 2026-12-18", "done 2033 to 2044"."""
    if low_s is None or high_s is None:
        return ""
    try:
        # By the clock of the zone at that time, which may be set forward or back until then.
        first, last = (datetime.fromtimestamp(now.timestamp() + seconds, now.tzinfo) for seconds in (low_s, high_s))
    except (OverflowError, ValueError, OSError):
        return ""
    form = "%H:%M" if high_s < CLOCK_S else SOON if high_s < WEEK_S else "%Y-%m-%d"
    if high_s >= YEARS_S:
        form = "%Y"
    if form == SOON and language() != "en":
        # Days and months by name would be the locale's, which Python does not load.
        form = "%m-%d %H:%M"
    early, late = first.strftime(form), last.strftime(form)
    return (
        tr("finishes {moment}", moment=early)
        if early == late
        else tr("finishes {first} to {last}", first=early, last=late)
    )


def energy_words(
    low_kwh: float | None, high_kwh: float | None, low_cost: float | None, high_cost: float | None, currency: str
) -> str:
    if low_kwh is None or high_kwh is None:
        return ""
    unit = f" {plain_text(currency)}" if currency else ""
    cost = "" if low_cost is None or high_cost is None else f"{tr(', ')}{amount_range(low_cost, high_cost)}{unit}"
    return f"{amount_range(low_kwh, high_kwh)} kWh{cost}"


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
