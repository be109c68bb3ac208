"""What the command and the wizard say alike: imports, plans, and chats as a model reads them. Values in, plain text out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr, tr_as, trn
from trainwiz.core.plan.words import part_word
from trainwiz.core.text import plain_text
from trainwiz.tui.text import (
    amount_range,
    cells,
    count,
    deviation,
    duration,
    duration_range,
    gib,
    pad,
    percent,
    short_count,
    size,
    span,
    three_digits,
)

if TYPE_CHECKING:
    from trainwiz.core.importing.report import Entry, Imported, Renamed
    from trainwiz.core.plan.fit import Fit
    from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan
    from trainwiz.core.tracing.chats import ShownChat


# What became of the settings of an import, as rows of texts.

LONGEST_VALUE = 40
LONGEST_NAME = 60


def part_words(part: Imported) -> str:
    from trainwiz.core.importing.report import KIND_WORDS

    return f"{plain_text(part.file)} ({tr(KIND_WORDS[part.kind])})"


def report_sections(merged: Imported) -> list[tuple[str, list[list[str]]]]:
    """(title, rows) of what an import has. Rows end with their place; those of what was dropped have one cell: a reason,
    and indented its settings, for there are few reasons."""
    from trainwiz.core.importing.report import shown
    from trainwiz.tui.commands.profiles import value_words

    def setting(one: Entry) -> list[str]:
        return [plain_text(one.name, LONGEST_NAME), plain_text(shown(one.value), LONGEST_VALUE)]

    def place(one: Entry | Renamed) -> str:
        line = f":{one.line}" if one.line else ""
        return plain_text(f"{one.file}{line}" if len(merged.parts) > 1 else line)

    reasons: dict[str, list[str]] = {}
    for one in merged.dropped:
        reasons.setdefault(plain_text(tr(one.why)), []).append(" ".join(setting(one)).rstrip())
    mapped, renamed, dropped, unknown = merged.mapped, merged.renamed, merged.dropped, merged.unknown
    sections = [
        (
            trn("Mapped: {n} setting", "Mapped: {n} settings", len(mapped)),
            [[*setting(one), f"→ {one.key}", value_words(one.set_to), place(one)] for one in mapped],
        ),
        (
            trn("Renamed: {n} old name", "Renamed: {n} old names", len(renamed)),
            [
                [plain_text(one.old, LONGEST_NAME), f"→ {plain_text(one.new, LONGEST_NAME)}", place(one)]
                for one in renamed
            ],
        ),
        (
            trn("Dropped: {n} setting", "Dropped: {n} settings", len(dropped)),
            [[text] for why, names in reasons.items() for text in (why, f"  {', '.join(names)}")],
        ),
        (
            trn("Unknown: {n} setting", "Unknown: {n} settings", len(unknown)),
            [[*setting(one), place(one)] for one in unknown],
        ),
    ]
    return [section for section in sections if section[1]]


# A row as the model will read it: its tokens in lines, the learnt ones between brackets.

OPEN, CLOSE, SPLIT, LINE_END = "⟦", "⟧", "│", "↵"
ROLE_WIDTH = 11
LONGEST_PIECE = 400

Segment = tuple[str, bool]
"""(text, whether it is learnt); brackets belong to what is learnt, so that colour is not needed to tell."""


def chat_lines(shown: ShownChat, width: int, split: str = SPLIT) -> Iterator[list[Segment]]:
    """The lines of a row, each as segments; the first of a turn begins with its role. `split` stands between tokens."""
    tokens = [(_visible(piece), learnt) for piece, learnt in zip(shown.pieces, shown.learnt, strict=True)]
    start = 0
    for role, end in (*shown.turns, ("", len(tokens))):
        label = plain_text(role)
        for line in _lines(tokens[start:end], max(20, width - ROLE_WIDTH), split):
            yield [(pad(label, ROLE_WIDTH), False), *line]
            label = ""
        start = max(start, end)


def _lines(tokens: Sequence[Segment], width: int, split: str) -> Iterator[list[Segment]]:
    """Lines of at most `width` cells, brackets included; a line ends where the text does."""
    line: list[Segment] = []
    for token in tokens:
        longer = sum(cells(text) for text, _ in _marked([*line, token], split))
        if line and (longer > width or line[-1][0].endswith(LINE_END)):
            yield _marked(line, split)
            line = []
        line.append(token)
    if line:
        yield _marked(line, split)


def _visible(piece: str) -> str:
    """A token on one line: ends of lines as a mark, what a terminal would obey taken out."""
    text = piece[:LONGEST_PIECE].replace("\r\n", LINE_END).replace("\n", LINE_END).replace("\t", "→")
    return plain_text(text) if text.strip() else text


def _marked(line: list[Segment], split: str) -> list[Segment]:
    runs = [(split.join(piece for piece, _ in run), learnt) for learnt, run in groupby(line, itemgetter(1))]
    return [(f"{OPEN}{text}{CLOSE}" if learnt else text, learnt) for text, learnt in runs]


# A plan: what is learnt, the batch, memory and time.

SMALL_SHARE = 0.01
"""A part of the time or of a pace below this share of the whole is not worth a word."""
CLOCK_S = 20 * 3600.0
"""Up to here a time of day says when; above it the day is needed, and of more than some days the day alone is said."""
WEEK_S = 6 * 86400.0

SOURCES = (mark("analytic"), mark("traced"), mark("measured"), mark("formula"))
"""Where figures come from, in one word; plans and --json have the word itself."""

MOST = 0.5
"""Fixed tables of positions and the like are not worth a word; adapters are."""


def trained_words(parameters: float | None, trainable: float | None) -> str:
    """ "42.0M of them trained, 0.6 %"; "" where most are, or where it is not known."""
    if not parameters or trainable is None or trainable > MOST * parameters:
        return ""
    return tr("{count} trainable, {share}", count=short_count(trainable), share=percent(trainable / parameters))


def batch_text(plan: Plan) -> str:
    """ "16 × 4 = 64 sequences, 8,192 tokens a step"; the processes stand between when there are several."""
    batch = plan.batch
    factors = [batch.micro_batch, batch.accumulation] + ([batch.world_size] if batch.world_size > 1 else [])
    words = trn(
        "{product} = {n} sequence, {tokens} tokens per step",
        "{product} = {n} sequences, {tokens} tokens per step",
        batch.effective_samples,
        product=" × ".join(map(count, factors)),
        n=count(batch.effective_samples),
        tokens=count(batch.effective_tokens),
    )
    if not batch.deviation:
        return words
    return tr("{batch} ({deviation} from the target)", batch=words, deviation=deviation(batch.deviation))


def batch_lines(plan: Plan) -> Iterator[str]:
    """The batch, then what its tokens are; some are empty."""
    batch = plan.batch
    yield batch_text(plan)
    source, target = count(batch.sequence_length), plan.config.batch.target_length
    if plan.task == "seq2seq" and target:
        yield tr("up to {source} source and {target} target tokens each", source=source, target=count(target))
    if batch.real_tokens is not None and batch.effective_tokens:
        share = percent(batch.real_tokens / batch.effective_tokens)
        yield tr("{count} non-padding ({share})", count=count(batch.real_tokens), share=share)
    yield tr("; ").join(padding_words(batch))


def padding_words(batch: BatchPlan) -> Iterator[str]:
    """What padding costs, and what it costs where rows are arranged otherwise.

    Where every row is computed at its full length, only the saving is worth a word.
    """
    padded, waste = batch.padded_tokens, batch.padding_waste
    if padded is None or waste is None:
        return
    if padded != batch.effective_tokens:
        yield tr("{count} processed, {share} padding", count=count(padded), share=percent(waste))
    arranged, drawn = batch.arranged_waste, batch.drawn_waste
    if arranged is not None and waste - arranged >= SMALL_SHARE:
        yield tr("{share} padding if the rows of a step were grouped by length", share=percent(arranged))
    elif drawn is not None and drawn - waste >= SMALL_SHARE:
        yield tr("{share} padding in sampling order", share=percent(drawn))


def method_words(plan: Plan) -> str:
    """What is about to be learnt, and at which rate: "fine-tunes the weights in ./model, learning rate 2e-05"."""
    rate = tr("learning rate {rate}", rate=f"{plan.config.training.learning_rate:g}")
    return f"{learnt_text(plan.model)}, {rate}" if plan.model.learnt else learnt_text(plan.model)


def learnt_text(model: PlannedModel) -> str:
    """The same without the rate; nothing is claimed of a model that was not found."""
    return plain_text(model.learnt, 200) or tr("unknown until the model is found")


def run_words(plan: Plan) -> list[str]:
    """How long a run is, what was asked for first: ["120 steps", "0.4 epochs"], ["3 epochs", "412 steps"]."""
    config, steps = plan.config, plan.time.steps
    by_epochs = config.training.epochs is not None and config.origin("training.max_steps").origin == "solved"
    # As asked for: 412 steps of whole batches are a little more than 3 epochs.
    amount = config.training.epochs if by_epochs else plan.time.epochs
    words = [] if steps is None else [trn("{n} step", "{n} steps", steps, n=count(steps))]
    if amount is not None:
        passes = trn("{n} epoch", "{n} epochs", 1 if amount == 1 else 2, n=three_digits(amount))
        words.insert(0 if by_epochs else 1, passes)
    return words


def memory_title(device: str) -> str:
    """What heads the memory that is computed in, by the `device` of the plan's memory: a card's, or the host's."""
    return tr_as("of the host", "Memory") if device == "host RAM" else tr("Memory")


def unknown_time_words(plan: Plan) -> str:
    """Why nobody can say how long it takes."""
    if plan.model.parameters is None:
        return tr("unknown: the model size is unknown")
    if plan.time.step_s is None:
        return tr("unknown: no performance data for this device")
    return tr("unknown: the number of steps is unknown")


def source_words(memory: MemoryPlan) -> str:
    """Where memory figures come from: "analytic (formulas)", "full trace", "measured here on 2026-11-21"."""
    tier, basis = memory.tier, memory.basis
    if not basis or tier in basis or tr(tier) in basis:
        return basis or tr(tier)
    return tr("{tier} ({basis})", tier=tr(tier), basis=basis)


def memory_lines(plan: Plan, fills: Sequence[str] = ("",)) -> Iterator[str]:
    """Below the verdict: the range, the peak and what it is made of, what a user will see; some are empty. `fills` are
    marks of the parts."""
    memory = plan.memory
    low, high = gib(memory.low_bytes), gib(memory.high_bytes)
    if memory.device_used_bytes:
        source = plain_text(source_words(memory), 300)
        if memory.device == "host RAM":
            yield tr("between {low} and {high}, {source}", low=low, high=high, source=source)
        else:
            yield tr("at most {most}; {source}", most=size(memory.judged_high_bytes), source=source)
        parts = [
            f"{fill} {tr('{part} {size}', part=plain_text(part_word(name)), size=size(amount))}".lstrip()
            for fill, name, amount in peak_parts(memory.breakdown, fills)
        ]
        yield tr("peak: {moment}; {parts}", moment=plain_text(tr(memory.peak_moment)), parts=tr(", ").join(parts))
        if plan.config.engine.device == "cuda":
            words = mark("nvidia-smi will show {shown}, between {low} and {high}")
            yield tr(words, shown=size(memory.device_used_bytes), low=low, high=high)
        if memory.evaluation_bytes is not None:
            yield tr("during evaluation {size}", size=size(memory.evaluation_bytes))
    yield plain_text(memory.waiting, 300)


SMALL_PART = 0.005


def peak_parts(breakdown: Mapping[str, int], fills: Sequence[str]) -> list[tuple[str, str, int]]:
    """(mark, name, bytes) of the parts of the peak that are worth a word, the largest first."""
    least = SMALL_PART * sum(breakdown.values())
    parts = sorted(breakdown.items(), key=itemgetter(1), reverse=True)
    marked = zip(chain(fills, repeat(fills[-1])), parts, strict=False)
    return [(fill, name, amount) for fill, (name, amount) in marked if amount > least]


def of_capacity(needed: int, capacity: int | None) -> str:
    if capacity is None:
        return tr("{size}, free space unknown", size=size(needed))
    return tr("{amount} of {whole}", amount=size(needed), whole=size(capacity))


def finish_words(time: TimePlan, now: datetime) -> str:
    """When a run that starts now is done: "finishes 23:50 to 00:20", "finishes 2026-12-02 to 2026-12-18"."""
    low_s, high_s = time.total_low_s, time.total_high_s
    if low_s is None or high_s is None:
        return ""
    form = "%H:%M" if high_s < CLOCK_S else "%Y-%m-%d %H:%M" if high_s < WEEK_S else "%Y-%m-%d"
    try:
        # By the clock of the zone at that time, which may be set forward or back until then.
        first, last = (datetime.fromtimestamp(now.timestamp() + seconds, now.tzinfo) for seconds in (low_s, high_s))
    except (OverflowError, ValueError, OSError):
        return ""
    return tr("finishes {range}", range=span(first.strftime(form), last.strftime(form)))


def time_lines(plan: Plan) -> Iterator[str]:
    """What stands below the total: the pace and where it comes from, then what arranging gains, parts beside steps,
    network, tokens, energy."""
    time = plan.time
    if time.step_low_s is not None:
        pace = tr("{time} per step", time=duration_range(time.step_low_s, time.step_high_s))
        share = time.fraction_of_peak
        peak = "" if share is None else tr("{share} of peak TFLOP/s", share=percent(share))
        basis = plain_text(time.basis_text or tr("by {basis}", basis=tr(time.basis)), 300)
        yield tr(", ").join(filter(None, (" = ".join(run_words(plan)), pace, peak, basis)))
    if time.pace_gain is not None and time.possible_pace_gain is not None and time.pace_gain >= 1 + SMALL_SHARE:
        gain, possible = f"{time.pace_gain:.2f}", f"{time.possible_pace_gain:.2f}"
        yield tr("{gain}x faster from grouping by length ({possible}x at best)", gain=gain, possible=possible)
    beside = {
        mark("evaluation {time}"): time.evaluation_s,
        mark("generation {time}"): time.generation_s,
        mark("saving {time}"): time.saving_s,
    }
    least_s = SMALL_SHARE * (time.total_s or math.inf)
    parts = [tr(part, time=duration(seconds)) for part, seconds in beside.items() if seconds and seconds > least_s]
    if parts:
        yield tr("including {parts}", parts=tr(", ").join(parts))
    yield network_words(time)
    if time.total_tokens is not None:
        total, real = short_count(time.total_tokens), short_count(time.real_tokens or time.total_tokens)
        yield (
            tr("{count} tokens", count=total)
            if real == total
            else tr("{count} tokens, {real} non-padding", count=total, real=real)
        )
    if time.energy_low_kwh is not None and time.energy_high_kwh is not None:
        energy = f"{amount_range(time.energy_low_kwh, time.energy_high_kwh)} kWh"
        if time.energy_cost_low is not None and time.energy_cost_high is not None:
            cost = amount_range(time.energy_cost_low, time.energy_cost_high)
            energy = tr(", ").join((energy, f"{cost} {plain_text(time.currency)}".rstrip()))
        yield energy


def network_words(time: TimePlan) -> str:
    """What a step moves between the machines and how long that takes at worst; "" for a run on one."""
    if time.network_bytes is None or time.network_high_s is None or not time.network_gbit_s:
        return ""
    speed = tr("{speed} Gbit/s", speed=f"{time.network_gbit_s:g}")
    share = time.network_high_s / time.step_high_s if time.step_high_s else 0.0
    return tr(
        "network: each node sends {size} per step, up to {time} of it ({share} of a slow step; {told})",
        size=size(time.network_bytes),
        time=duration(time.network_high_s),
        share=percent(share),
        told=tr("{speed}, assumed: planning.network_gbit_s", speed=speed) if time.network_assumed else speed,
    )


# A row of what fits, for a list.


def fit_words(fit: Fit) -> str:
    from trainwiz.core.plan.fit import METHOD_NAMES, passes_words

    plan, memory = fit.plan, fit.plan.memory
    time = duration_range(plan.time.total_low_s, plan.time.total_high_s)
    parts = [
        tr(METHOD_NAMES[fit.method]),
        tr("{length} tokens", length=count(plan.batch.sequence_length)),
        tr("{share} of the rows truncated", share=percent(fit.cut)) if fit.cut else "",
        tr("{amount} of {whole} GiB", amount=gib(memory.needed_bytes), whole=gib(memory.capacity_bytes)),
        tr("tight") if memory.verdict == "tight" else "",
        tr("{time} for {passes}", time=time, passes=passes_words(fit.passes)),
    ]
    return tr(", ").join(filter(None, parts))
