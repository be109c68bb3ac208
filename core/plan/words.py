"""Sizes, shares and times in the words of a plan."""

from __future__ import annotations

GIB = 2**30


def gib(size: float) -> str:
    """ "5.4 GiB", and "74 MiB" for what would round to little or nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 2 or size == 0 else f"{size / 2**20:.0f} MiB"


def percent(share: float, digits: int = 0, signed: bool = False) -> str:
    """0.35 -> "35 %"; with a sign -0.25 -> "-25 %"."""
    return f"{share * 100:{'+' if signed else ''}.{digits}f} %"


def duration(seconds: float) -> str:
    """Two significant figures of the unit that a person would use: "35 years", "11 days", "460 s"."""
    if seconds < 120:
        return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    for unit, size in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def duration_range(low: float, high: float) -> str:
    """ "7 to 18 years": the unit once where both share it."""
    first, second = duration(low), duration(high)
    if first == second:
        return first
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{first} to {second}"
