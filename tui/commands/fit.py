"""`trainwiz fit`: what can be trained with a card, some data and an evening; a row of it opens in the wizard."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import count as count_from
from pathlib import Path
from typing import Any, cast

from trainwiz.core.data.detect import RowsKind
from trainwiz.core.errors import EXIT_FINISHED, UsageError
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.fit import (
    METHOD_NAMES,
    RULES,
    TRACED,
    Fit,
    Fits,
    Limit,
    Question,
    Rule,
    find_fits,
    improved,
    passes_words,
)
from trainwiz.core.plan.gather import Gathered, probe_here
from trainwiz.core.plan.refine import Refiner, RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import Choices, checked, parse_choices, wrong
from trainwiz.tui.commands.plan import VERDICTS, machine_text, refining
from trainwiz.tui.options import wanted_tier
from trainwiz.tui.output import Row, Waiting, fitted, is_terminal, paint, say, say_json, say_rows
from trainwiz.tui.text import (
    amount_range,
    count,
    duration,
    duration_range,
    gib,
    percent,
    short_count,
    three_digits,
)

# How long it may take and what it may cost, as it is written.

PRICE, CURRENCY = "planning.energy_price_per_kwh", "planning.currency"
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d+)?)\s*([A-Za-z€$£¥]{0,8})")
DAY = "%Y-%m-%d %H:%M"


def limit_of(
    now: datetime,
    overrides: dict[str, Any],
    *,
    until: str | None = None,
    hours: float | None = None,
    budget: str | None = None,
    per_hour: str | None = None,
) -> Limit:
    """The currency of an amount becomes that of `overrides`. UsageError for what cannot be."""
    given = [flag for flag, value in {"--until": until, "--hours": hours, "--budget": budget}.items() if value]
    if len(given) > 1:
        raise _refused(given[-1], mark("{limits} can't be combined; keep one"), limits=tr(" and ").join(given))
    cost, rent = _amount("--budget", budget, overrides), _amount("--per-hour", per_hour, overrides)
    if cost is not None and rent is None and PRICE not in overrides:
        sentence = mark(
            "no price is set: set that of electricity with --set {price}=0.30, or that of an hour of the machine "
            "with --per-hour 0.80"
        )
        raise _refused("--budget", sentence, price=PRICE)
    seconds = hours * 3600 if hours else None
    if until:
        seconds = parse_until(until, now).timestamp() - now.timestamp()
    return Limit(seconds, cost, rent)


def _refused(flag: str, sentence: str, **values: object) -> UsageError:
    return UsageError(wrong(flag, tr(sentence, **values)))


def parse_until(text: str, now: datetime) -> datetime:
    """ "08:00" is the next one; with a date it is that day's. `now` is by the clock of this place."""
    shown = repr(plain_text(text, 40))
    with suppress(ValueError):
        return _next(datetime.strptime(text.strip(), "%H:%M"), now)
    try:
        end = datetime.fromisoformat(text.strip()).astimezone().replace(tzinfo=None)
    except (ValueError, OverflowError):
        sentence = mark("{shown} is not a time; for example 08:00 or {example}")
        raise _refused("--until", sentence, shown=shown, example=f"{now:%Y-%m-%d} 23:00") from None
    if end <= now:
        sentence = mark("{shown} has passed (it is {now}); the next one is {next}")
        raise _refused("--until", sentence, shown=shown, now=f"{now:{DAY}}", next=f"{_next(end, now):{DAY}}")
    return end


def _next(clock: datetime, now: datetime) -> datetime:
    today = datetime.combine(now, clock.time())
    return today if today > now else today + timedelta(days=1)


def _amount(flag: str, text: str | None, overrides: dict[str, Any]) -> float | None:
    """Its currency becomes that of `overrides`."""
    if not text:
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or not float(match[1]):
        sentence = mark("{shown} is not an amount of money; for example 5EUR")
        raise _refused(flag, sentence, shown=repr(plain_text(text, 40)))
    amount, currency = match.groups()
    if currency and overrides.setdefault(CURRENCY, currency) != currency:
        both = tr(" and ").join((str(overrides[CURRENCY]), currency))
        raise _refused(flag, mark("{currencies} are different currencies"), currencies=both)
    return float(amount)


# The command.


def run_fit(values: Mapping[str, Any], **asked: Any) -> int:
    choices = parse_choices({**values, "profile": "none"})
    waits = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not choices.json
    fits = answer(choices, **asked, waits=waits)
    if choices.json:
        say_json(document(fits))
    elif not waits:
        _say_fits(fits)
        say()
        for number, fit in enumerate(fits.rows, start=1):
            say(f"{number:>2}  {plain_text(fit.command, 2000)}")
    elif chosen := _chosen(fits):
        from trainwiz.tui.commands.wizard import run_wizard

        return run_wizard(chosen.request, at_review=True)
    return EXIT_FINISHED


def answer(
    choices: Choices, *, models: Sequence[str] = (), best: str = "largest", waits: bool = False, **limits: Any
) -> Fits:
    """What fits. `limits` are those of `limit_of`. `waits`: somebody reads, and sees the rows before and after the first
    ones are traced."""
    rule = cast("Rule", checked("--best", best, tuple(RULES)))
    tier = wanted_tier(choices.tier, "layers" if waits else "analytic")
    limit = limit_of(datetime.now(), choices.request.overrides, **limits)
    question = Question(choices.request, tuple(models), limit, rule)
    with refining(tier) as refiner:
        with Waiting(tr("searching for models that fit")):
            fits = find_fits(question, probe_here(choices.request), refiner)
        if waits:
            _say_fits(fits)
        if tier == "analytic":
            return fits
        better = traced(refiner, fits, tier)
    if waits and better is not fits:
        say()
        _say_table(better)
    return better


LIMIT_S = 120.0
"""For all traces; each takes some seconds."""


def traced(refiner: Refiner, fits: Fits, tier: RefineTier) -> Fits:
    """The first rows with traced figures, as many as there is time for; Ctrl-C leaves it at those that are there."""
    numbers, most, end = count_from(1), min(TRACED, len(fits.rows)), time.monotonic() + LIMIT_S
    with Waiting("") as waiting, suppress(KeyboardInterrupt):

        def better(gathered: Gathered) -> Plan:
            waiting.say(
                tr("tracing row {number} of {most}; press Ctrl-C to choose now", number=next(numbers), most=most)
            )
            return refiner.improve(gathered, lambda plan: None, tier, limit_s=max(0.0, end - time.monotonic()))

        for found in improved(fits, better):
            fits = found
            if time.monotonic() > end:
                break
    return fits


def _chosen(fits: Fits) -> Fit | None:
    """The row that somebody wants to open; None where he leaves."""
    rows = {str(number): fit for number, fit in enumerate(fits.rows, start=1)}
    with suppress(EOFError, KeyboardInterrupt):
        question = tr("Row to open in the wizard (Enter: the first, q: quit): ")
        while (typed := input(question).strip() or "1") != "q":
            if typed in rows:
                return rows[typed]
            shown = repr(plain_text(typed, 20))
            say(tr("{answer} is not a row number. Type 1 to {most}.", answer=shown, most=len(rows)))
    return None


def document(fits: Fits) -> dict[str, Any]:
    question, currency = fits.question, fits.question.request.overrides.get(CURRENCY, "")
    return {
        "machine": fits.machine.to_json(),
        "task": fits.rows[0].plan.task,
        "rows_are": fits.kind,
        "told_by": None if fits.told is None else fits.told.why,
        "data_rows": fits.data.texts or fits.data.rows,
        "length_unit": fits.data.length_unit,
        "rule": question.rule,
        "passes": question.passes,
        "limit": {**asdict(question.limit), "currency": currency},
        "models_tried": fits.tried,
        "fits": [fit.to_json() for fit in fits.rows],
    }


# What is printed.


def _say_fits(fits: Fits) -> None:
    say_rows(_head(fits))
    say()
    _say_table(fits)


KINDS: dict[RowsKind, str] = {
    "chats": mark("chats, for instruct models"), "texts": mark("plain text, for language models"),
    "pairs": mark("source and target pairs"), "classes": mark("texts with class "
        "labels"), "tags": mark("words with tags"),
    "proteins": mark("protein sequences"),
}  # fmt: skip


LEFT = ("model", "method", "verdict")
DROPPED = ("tokens", "rank", "size", "truncated", "kWh", "range")
"""Columns that go where a terminal is narrow, the first one first."""


def _cells(fit: Fit) -> dict[str, str]:
    """Heading -> what a row has below it; a column that is empty in all rows is left out."""
    memory, time = fit.plan.memory, fit.plan.time
    needed, whole = gib(memory.needed_bytes), memory.capacity_bytes
    sign, word, _ = VERDICTS[memory.verdict or "fits"]
    currency = plain_text(fit.plan.config.planning.currency, 8)
    return {
        mark("model"): plain_text(fit.model, 40),
        mark("size"): short_count(fit.parameters),
        mark("method"): tr(METHOD_NAMES[fit.method]),
        mark("length"): count(fit.plan.batch.sequence_length),
        mark("rank"): "-" if fit.rank is None else str(fit.rank),
        mark("truncated"): percent(fit.cut),
        mark("needs GiB"): needed if whole is None else tr("{amount} of {whole}", amount=needed, whole=gib(whole)),
        mark("verdict"): f"{sign} {tr(word)}" + ("" if memory.tier == "analytic" else f" ({tr(memory.tier)})"),
        mark("time"): duration(time.total_s),
        mark("range"): duration_range(time.total_low_s, time.total_high_s),
        mark("epochs"): three_digits(fit.passes),
        mark("tokens"): short_count(time.real_tokens or time.total_tokens),
        "kWh": _range(time.energy_low_kwh, time.energy_high_kwh),
        mark("cost"): f"{_range(fit.cost[0], fit.cost[2])} {currency}".rstrip() if fit.cost else "",
    }


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else amount_range(low, high)


def _head(fits: Fits) -> Iterator[Row]:
    first, question, passes = fits.rows[0].plan, fits.question, passes_words(fits.question.passes)
    name = plain_text(Path(first.config.data.sources[0].name).name, 60)
    rows = count(fits.data.texts or fits.data.rows)
    what = tr("{rows} rows of {name}: {kind}", rows=rows, name=name, kind=tr(KINDS[fits.kind]))
    if fits.told is not None:
        what += tr(" ({why}; change it with --task)", why=plain_text(fits.told.why, 200))
    yield tr("Data"), what
    yield tr("Machine"), machine_text(first)
    yield tr("Best"), tr(RULES[question.rule], passes=passes)


def _say_table(fits: Fits) -> None:
    """And below it how exact the figures are, licences, and errors that a start would meet and a download does not cure."""
    from trainwiz.core.plan.gather import NOT_ABOUT_FIT

    cells = list(map(_cells, fits.rows))
    names = [name for name in cells[0] if any(row[name] for row in cells)]
    rows = [["#", *map(tr, names)]]
    rows += [[str(number), *(row[name] for name in names)] for number, row in enumerate(cells, start=1)]
    right = [0, *(place for place, name in enumerate(names, start=1) if name not in LEFT)]
    head, *lines = fitted(rows, right, [1 + names.index(name) for name in DROPPED if name in names])
    say(paint("  ".join(head).rstrip(), "quiet"))
    for line, fit in zip(lines, fits.rows, strict=True):
        is_late = not fit.in_time or fit.plan.memory.verdict != "fits"
        shown = "  ".join(line).rstrip()
        say(paint(shown, "warning") if is_late else shown)
    said = mark("Memory and time are formula estimates; --tier full traces the memory of the first {count} rows.")
    if any(fit.plan.memory.tier != "analytic" for fit in fits.rows):
        said = mark(
            "Where the verdict says traced, memory is from a trace of the step; everything else is estimated by "
            "formula."
        )
    say(tr(said, count=TRACED))
    if gated := sorted({fit.model for fit in fits.rows if fit.plan.spec is not None and fit.plan.spec.gated}):
        say(tr("Accept the license on the Hub first: {models}.", models=", ".join(gated)))
    for number, fit in enumerate(fits.rows, start=1):
        for finding in fit.plan.errors:
            if finding.code not in NOT_ABOUT_FIT:
                say(tr("{number}: {message}", number=number, message=plain_text(finding.message, 300)))
