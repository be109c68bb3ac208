"""Profiles as text: their values, what differs, what a guide claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from trainwiz.core.json_text import finite
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.profile import Profile
from trainwiz.tui.cells import cells, pad
from trainwiz.tui.figures import count, number, size, span
from trainwiz.tui.output import paint, say, wrapped


def machine_words(profile: Profile) -> str:
    hardware = profile.hardware
    if hardware.gpu is None:
        return tr("any")
    parts = [f"{hardware.num_gpus} × {plain_text(hardware.gpu)}"]
    if hardware.cpu_cores:
        parts.append(trn("{n} core", "{n} cores", hardware.cpu_cores))
    if hardware.ram_bytes:
        parts.append(tr("{size} RAM", size=size(hardware.ram_bytes)))
    return tr(", ").join(parts)


def card_words(gpu: str | None, count: int) -> str:
    if gpu is None:
        return tr("any")
    return plain_text(gpu) if count == 1 else f"{count} × {plain_text(gpu)}"


def say_values(profile: Profile) -> None:
    rows = [
        [f"  {key}", value_words(value), plain_text(tr(profile.reasons.get(key, "")))]
        for key, value in profile.values.items()
    ]
    say_table(rows, head=False)


def say_claims(profile: Profile) -> None:
    if not profile.claims:
        return
    say()
    say(tr("  The guide claims (the plan checks it):"))
    if "tokens_per_s" in profile.claims:
        low, high = profile.claims["tokens_per_s"]
        say("    " + tr("{range} tokens/s", range=span(number(low), number(high))))
    for key, words in (("peak_memory", mark("peak memory {value}")), ("total_time", mark("total time {value}"))):
        if key in profile.claims:
            say("    " + tr(words, value=plain_text(profile.claims[key])))
    for remedy in profile.claims.get("remedies", ()):
        say(f"    {plain_text(tr(remedy['text']))}")


def change_cells(change: dict[str, Any]) -> list[str]:
    words = _hardware_value if change["key"].startswith("hardware.") else value_words
    shown = [words(change[side]) for side in ("first", "second")]
    if shown[0] == shown[1] and change["key"].endswith("sources"):
        # The same names: what differs is how much of them is used.
        shown = [", ".join(map(_source, change[side])) for side in ("first", "second")]
    return [plain_text(change["key"]), *shown, plain_text(tr(change["reason"]))]


def _hardware_value(value: Any) -> str:
    """What a machine must have; sizes are the only large numbers in it."""
    if value is None:
        return tr("not said")
    return size(value) if isinstance(value, int) and value >= 2**20 else plain_text(str(value))


def value_words(value: Any) -> str:
    """A setting as text: numbers short and exact, data sources by name, None as what it means."""
    if value is None:
        return tr("solved")
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(
            value_words(item["name"] if isinstance(item, dict) and "name" in item else item) for item in value
        )
    return plain_text(json.dumps(finite(value)) if isinstance(value, dict) else value)


def _source(source: dict[str, Any]) -> str:
    """A data source by name, with what limits its rows."""
    rows, least, most = (source.get(key) for key in ("max_rows", "min_characters", "max_characters"))
    limits = [tr("{count} rows", count=count(rows))] if rows is not None else []
    if most is not None:
        limits.append(tr("{range} characters", range=span(count(least or 0), count(most))))
    elif least is not None:
        limits.append(tr("at least {count} characters", count=count(least)))
    return plain_text(str(source["name"])) + (f" ({', '.join(limits)})" if limits else "")


def say_table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset(), *, head: bool = True) -> None:
    """Columns of text. The last column wraps under itself on a terminal; `head` makes the first row quiet."""
    widths = [max(cells(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for position, row in enumerate(rows):
        start = "  ".join([*(pad(row[c], width, right=c in right) for c, width in enumerate(widths)), ""])
        first, *rest = wrapped(row[-1], " " * cells(start), sys.stdout)
        for line in [f"{start}{first}", *(" " * cells(start) + more for more in rest)]:
            say(paint(line.rstrip(), "quiet", sys.stdout) if head and position == 0 else line.rstrip())
