"""Ranges as guides write them: "3.5-4 h", "14 to 15 GB"."""

from __future__ import annotations

import re

from trainwiz.core.profile.size import parse_size

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
