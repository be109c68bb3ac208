"""Sizes, shares, times and ranges in the words of a plan and of a guide."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwiz.core.errors import after
from trainwiz.core.language import mark, tr

# Sizes, shares and times in the words of a plan.

GIB = 2**30


def gib(size: float) -> str:
    """ "5.4 GiB", and "74 MiB" for what would round to little or nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 2 or size == 0 else f"{size / 2**20:.0f} MiB"


def percent(share: float, digits: int = 0, signed: bool = False) -> str:
    """0.35 -> "35 %"; with a sign -0.25 -> "-25 %"."""
    return f"{share * 100:{'+' if signed else ''}.{digits}f} %"


SECONDS, MINUTES = mark("{number} s"), mark("{number} minutes")
LONG_UNITS = (
    (mark("{number} years"), 365.25 * 86400),
    (mark("{number} days"), 86400.0),
    (mark("{number} hours"), 3600.0),
    (MINUTES, 60.0),
)


def duration(seconds: float) -> str:
    """Two significant figures of the unit that a person would use: "35 years", "11 days", "460 s"."""
    number, unit = _in_unit(seconds)
    return tr(unit, number=number)


def duration_range(low: float, high: float) -> str:
    """ "7 to 18 years": the unit once where both share it."""
    (first, unit), (_, other) = _in_unit(low), _in_unit(high)
    begin, end = duration(low), duration(high)
    if begin == end:
        return begin
    return tr("{first} to {second}", first=first if unit == other else begin, second=end)


def _in_unit(seconds: float) -> tuple[str, str]:
    """(number, unit with a place for the number) of a time."""
    if seconds < 120:
        return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}", SECONDS
    for unit, size in LONG_UNITS:
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}", unit
    return f"{seconds / 60:.0f}", MINUTES


def aside(text: str | None) -> str:
    """A reason in brackets behind a word; nothing for none."""
    return after(tr("({reason})", reason=text)) if text else ""


def listed(words: Iterable[str]) -> str:
    """ "one, two, three"."""
    return tr(", ").join(words)


PARTS = {
    "weights": mark("weights"),
    "gradients": mark("gradients"),
    "optimizer": mark("optimizer"),
    "activations": mark("activations"),
    "logits": mark("logits"),
    "temporary": mark("temporary"),
    "context": mark("context"),
    "processes": mark("processes"),
    "training": mark("training processes"),
    "loading": mark("loading the model"),
    "saving": mark("writing the weights"),
    "supervisor": mark("supervisor"),
    "workers": mark("loader workers"),
    "pinned": mark("pinned"),
    "data": mark("data"),
    "model": mark("model"),
    "offloaded": mark("offloaded"),
}
"""Parts of a peak and of host RAM, by their keys in plan.json."""


def part_word(key: str) -> str:
    """What a part of the memory is called."""
    return tr(PARTS.get(key, key))


# Ranges as guides write them: "3.5-4 h", "14 to 15 GB".

_NUMBER = r"(\d+(?:[.,]\d+)?)"
_RANGE = re.compile(rf"\s*(?:about|around|~)?\s*{_NUMBER}(?:\s*(?:-|–|to|bis)\s*{_NUMBER})?\s*([a-zA-Z]*)\s*")
_SECONDS: dict[str, float] = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
    "week": 7 * 86400.0,
    "month": 30 * 86400.0,
    "year": 365.25 * 86400.0,
}


def duration_of(text: str) -> tuple[float, float] | None:
    """(low, high) in seconds of "3.5-4 h", "2 days" or "90 min"; None for anything else."""
    found = _ends(text)
    if found is None:
        return None
    low, high, unit = found
    seconds = _SECONDS.get(unit.lower(), _SECONDS.get(unit.lower().removesuffix("s")))
    return None if seconds is None else (low * seconds, high * seconds)


def size_of(text: str) -> tuple[int, int] | None:
    """(low, high) in bytes of "14-15 GB" or "8 GB"; None for anything else."""
    from trainwiz.core.profile.profile import parse_size

    found = _ends(text)
    if found is None:
        return None
    low, high = (parse_size(f"{end} {found[2]}") for end in found[:2])
    return None if low is None or high is None else (low, high)


def _ends(text: str) -> tuple[float, float, str] | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    low = float(match.group(1).replace(",", "."))
    high = float(match.group(2).replace(",", ".")) if match.group(2) else low
    return (low, high, match.group(3)) if 0 < low <= high else None
