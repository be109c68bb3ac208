"""Spans of time in a word or two, as sentences use them."""

from __future__ import annotations

UNITS = (("day", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def span_words(seconds: float) -> str:
    """ "12 days", "5 h", "40 min", "7 s": the largest unit of which there are two, else the next smaller."""
    for name, size in UNITS:
        if seconds >= 2 * size:
            count = round(seconds / size)
            return f"{count:,} {name}{'s' if name == 'day' else ''}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
