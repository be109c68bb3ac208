"""`trainwiz fit`: what can be trained with a card, some data and an evening; a row of it opens in the wizard."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from trainwiz.core.data.detect import RowsKind
from trainwiz.core.errors import EXIT_FINISHED, Finding, UsageError
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
    parse_number,
    percent,
    short_count,
    three_digits,
)

# How long it may take and what it may cost, as it is written.

PRICE, CURRENCY = "planning.energy_price_per_kwh", "planning.currency"
MOST_HOURS = 100_000.0
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_AMOUNT = re.compile(r"([\d.,]+)\s*([A-Za-z€$£¥]{0,8})")
DAY = "%Y-%m-%d %H:%M"


def limit_of(typed: Mapping[str, str | None], now: datetime, overrides: dict[str, Any]) -> Limit:
    """`typed`: option -> its text. The currency of an amount becomes that of `overrides`. UsageError for what cannot be."""
    given = [flag for flag in ("--until", "--hours", "--budget") if typed.get(flag)]
    if len(given) > 1:
        raise _refused(given[-1], mark("{limits} can't be combined; keep one"), limits=tr(" and ").join(given))
    amounts = {flag: _amount(flag, text) for flag in ("--budget", "--per-hour") if (text := typed.get(flag))}
    currencies = {str(overrides.get(CURRENCY) or ""), *(currency for _, currency in amounts.values())} - {""}
    if len(currencies) > 1:
        flag, both = next(iter(amounts)), tr(" and ").join(sorted(currencies))
        raise _refused(flag, mark("{currencies} are different currencies"), currencies=both)
    if currencies:
        overrides[CURRENCY] = currencies.pop()
    cost, per_hour = (amounts.get(flag, (None, ""))[0] for flag in ("--budget", "--per-hour"))
    if cost is not None and per_hour is None and PRICE not in overrides:
        sentence = mark(
            "no price is set: set that of electricity with --set {price}=0.30, or that of an hour of the machine "
            "with --per-hour 0.80"
        )
        raise _refused("--budget", sentence, price=PRICE)
    until, hours = typed.get("--until"), typed.get("--hours")
    seconds = parse_until(until, now).timestamp() - now.timestamp() if until else None
    return Limit(_hours(hours) * 3600 if hours else seconds, cost, per_hour)


def _refused(flag: str, sentence: str, **values: object) -> UsageError:
    return UsageError(wrong(flag, tr(sentence, **values)))


def parse_until(text: str, now: datetime) -> datetime:
    """ "08:00" is the next one; with a date it is that day's. `now` is by the clock of this place."""
    shown, clock = repr(plain_text(text, 40)), _CLOCK.fullmatch(text.strip())
    try:
        if clock is not None:
            today = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
            return today if today > now else today + timedelta(days=1)
        end = datetime.fromisoformat(text.strip())
    except ValueError:
        sentence = mark("{shown} is not a time; for example 08:00 or {example}")
        raise _refused("--until", sentence, shown=shown, example=f"{now:%Y-%m-%d} 23:00") from None
    end = end if end.tzinfo is None else end.astimezone().replace(tzinfo=None)
    if end > now:
        return end
    after, sentence = parse_until(f"{end:%H:%M}", now), mark("{shown} has passed (it is {now}); the next one is {next}")
    raise _refused("--until", sentence, shown=shown, now=f"{now:{DAY}}", next=f"{after:{DAY}}")


def _hours(text: str) -> float:
    with suppress(ValueError):
        if 0 < (hours := parse_number(text)) <= MOST_HOURS:
            return hours
    sentence = mark("{shown} is not a number of hours; for example 6 or 0.5")
    raise _refused("--hours", sentence, shown=repr(plain_text(text, 40)))


def _amount(flag: str, text: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text.strip())
    with suppress(ValueError):
        if match is not None and 0 < (amount := parse_number(match[1])) < math.inf:
            return amount, match[2]
    sentence = mark("{shown} is not an amount of money; for example 5EUR")
    raise _refused(flag, sentence, shown=repr(plain_text(text, 40)))


# The command.


def run_fit(values: Mapping[str, Any], **asked: Any) -> int:
    choices = parse_choices({**values, "profile": "none"})
    waits = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not choices.json
    fits = answer(choices, **asked, waits=waits)
    if choices.json:
        say_json(document(fits))
        return EXIT_FINISHED
    if waits:
        return _ask(fits)
    _say_fits(fits)
    say()
    for number, fit in enumerate(fits.rows, start=1):
        say(f"{number:>2}  {plain_text(fit.command, 2000)}")
    return EXIT_FINISHED


def answer(
    choices: Choices,
    *,
    models: Sequence[str] = (),
    until: str | None = None,
    hours: str | None = None,
    budget: str | None = None,
    per_hour: str | None = None,
    best: str = "largest",
    waits: bool = False,
) -> Fits:
    """What fits. `waits`: somebody reads, and sees the rows before and after the first ones are traced."""
    rule = cast("Rule", checked("--best", best, tuple(RULES)))
    tier = wanted_tier(choices.tier, "layers" if waits else "analytic")
    typed = {"--until": until, "--hours": hours, "--budget": budget, "--per-hour": per_hour}
    limit = limit_of(typed, datetime.now(), choices.request.overrides)
    question = Question(choices.request, tuple(models), limit, rule)
    with refining(tier) as refiner:
        with Waiting(tr("searching for models that fit")):
            fits = find_fits(question, probe_here(choices.request), refiner)
        if waits:
            _say_fits(fits)
        if tier != "analytic":
            better = traced(refiner, fits, tier)
            if waits and better is not fits:
                say()
                _say_table(better)
            fits = better
    return fits


LIMIT_S = 120.0
"""For all traces; each takes some seconds."""


def traced(refiner: Refiner, fits: Fits, tier: RefineTier) -> Fits:
    """The first rows with traced figures, as many as there is time for; Ctrl-C leaves it at those that are there."""
    number, end = 0, time.monotonic() + LIMIT_S
    with Waiting("") as waiting:

        def better(gathered: Gathered) -> Plan:
            nonlocal number
            number += 1
            most = min(TRACED, len(fits.rows))
            waiting.say(tr("tracing row {number} of {most}; press Ctrl-C to choose now", number=number, most=most))
            return refiner.improve(gathered, lambda plan: None, tier, limit_s=max(0.0, end - time.monotonic()))

        try:
            for found in improved(fits, better):
                fits = found
                if time.monotonic() > end:
                    break
        except KeyboardInterrupt:
            pass
    return fits


def _ask(fits: Fits) -> int:
    while True:
        try:
            answer = input(tr("Row to open in the wizard (Enter: the first, q: quit): ")).strip().lower()
        except (EOFError, KeyboardInterrupt):
            say()
            return EXIT_FINISHED
        if answer in ("q", "quit"):
            return EXIT_FINISHED
        if not answer or (answer.isdecimal() and 1 <= int(answer) <= len(fits.rows)):
            break
        say(
            tr(
                "{answer} is not a row number. Type 1 to {most}.",
                answer=repr(plain_text(answer, 20)),
                most=len(fits.rows),
            )
        )
    from trainwiz.tui.commands.wizard import run_wizard

    return run_wizard(fits.rows[int(answer or 1) - 1].request, at_review=True)


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


COLUMNS: dict[str, Callable[[Fit], str]] = {
    mark("model"): lambda fit: plain_text(fit.model, 40),
    mark("size"): lambda fit: short_count(fit.parameters),
    mark("method"): lambda fit: tr(METHOD_NAMES[fit.method]),
    mark("length"): lambda fit: count(fit.plan.batch.sequence_length),
    mark("rank"): lambda fit: "-" if fit.rank is None else str(fit.rank),
    mark("truncated"): lambda fit: percent(fit.cut),
    mark("needs GiB"): lambda fit: _memory_cell(fit),
    mark("verdict"): lambda fit: _verdict_cell(fit),
    mark("time"): lambda fit: duration(fit.plan.time.total_s),
    mark("range"): lambda fit: duration_range(fit.plan.time.total_low_s, fit.plan.time.total_high_s),
    mark("epochs"): lambda fit: three_digits(fit.passes),
    mark("tokens"): lambda fit: short_count(fit.plan.time.real_tokens or fit.plan.time.total_tokens),
    "kWh": lambda fit: _range_cell(fit.plan.time.energy_low_kwh, fit.plan.time.energy_high_kwh),
    mark("cost"): lambda fit: "" if fit.cost is None else _range_cell(fit.cost[0], fit.cost[2]),
}
LEFT = ("model", "method", "verdict")
DROPPED = ("tokens", "rank", "size", "truncated", "kWh", "range")
"""Columns that go where a terminal is narrow, the first one first."""


def _memory_cell(fit: Fit) -> str:
    memory = fit.plan.memory
    needed, whole = gib(memory.needed_bytes), memory.capacity_bytes
    return needed if whole is None else tr("{amount} of {whole}", amount=needed, whole=gib(whole))


def _verdict_cell(fit: Fit) -> str:
    sign, word, _ = VERDICTS[fit.plan.memory.verdict or "fits"]
    is_traced = fit.plan.memory.tier != "analytic"
    return f"{sign} {tr(word)}" + (f" ({tr(fit.plan.memory.tier)})" if is_traced else "")


def _range_cell(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else amount_range(low, high)


def _head(fits: Fits) -> Iterator[Row]:
    first, passes = fits.rows[0].plan, passes_words(fits.question.passes)
    name = plain_text(Path(first.config.data.sources[0].name).name, 60)
    what = tr(
        "{rows} rows of {name}: {kind}",
        rows=count(fits.data.texts or fits.data.rows),
        name=name,
        kind=tr(KINDS[fits.kind]),
    )
    if fits.told is not None:
        what += tr(" ({why}; change it with --task)", why=plain_text(fits.told.why, 200))
    yield tr("Data"), what
    yield tr("Machine"), machine_text(first)
    limit, each = fits.question.limit, mark("{limit}; each row below is planned for {passes}, or for what it allows")
    if fits.rows[0].limit_s is not None:
        currency = plain_text(first.config.planning.currency, 8)
        most = duration(limit.seconds) if limit.cost is None else f"{limit.cost:g} {currency}"
        yield tr("Limit"), tr(each, limit=most, passes=passes)
    yield tr("Best"), tr(RULES[fits.question.rule], passes=passes)


def _say_table(fits: Fits) -> None:
    names = ["#", *(name for name, cell in COLUMNS.items() if any(map(cell, fits.rows)))]
    currency = plain_text(fits.rows[0].plan.config.planning.currency, 8)
    rows = [[currency if currency and name == "cost" else tr(name) for name in names]]
    rows += [
        [str(number), *(COLUMNS[name](fit) for name in names[1:])] for number, fit in enumerate(fits.rows, start=1)
    ]
    right = [place for place, name in enumerate(names) if name not in LEFT]
    dropped = [names.index(name) for name in DROPPED if name in names]
    head, *lines = ["  ".join(row).rstrip() for row in fitted(rows, right, dropped)]
    say(paint(head, "quiet"))
    for line, fit in zip(lines, fits.rows, strict=True):
        late = not fit.in_time or fit.plan.memory.verdict != "fits"
        say(paint(line, "warning") if late else line)
    for note in _notes(fits):
        say(note)


def _notes(fits: Fits) -> Iterator[str]:
    tiers = [fit.plan.memory.tier != "analytic" for fit in fits.rows]
    yield (
        tr(
            "Where the verdict says traced, memory is from a trace of the step; everything else is estimated by "
            "formula."
        )
        if any(tiers)
        else tr(
            "Memory and time are formula estimates; --tier full traces the memory of the first {count} rows.",
            count=TRACED,
        )
    )
    gated = sorted({fit.model for fit in fits.rows if fit.plan.spec is not None and fit.plan.spec.gated})
    if gated:
        yield tr("Accept the license on the Hub first: {models}.", models=", ".join(gated))
    errors = [(number, finding) for number, fit in enumerate(fits.rows, start=1) for finding in _in_the_way(fit)]
    for number, finding in errors[:TRACED]:
        yield tr("{number}: {message}", number=number, message=plain_text(finding.message, 300))


def _in_the_way(fit: Fit) -> list[Finding]:
    """Errors of a plan that a start would meet and a download does not cure."""
    from trainwiz.core.plan.gather import NOT_ABOUT_FIT

    return [finding for finding in fit.plan.errors if finding.code not in NOT_ABOUT_FIT]
