"""Spans of time in a word or two, as sentences use them."""

from __future__ import annotations

from trainwiz.core.language import tr, trn
from trainwiz.core.moments import FARTHEST_S

DAY_S, HOUR_S, MINUTE_S = 86_400.0, 3_600.0, 60.0


def span_words(seconds: float) -> str:
    """ "12 days", "5 h", "40 min", "7 s": the largest unit of which there are two, else the next smaller."""
    seconds = seconds if seconds < FARTHEST_S else FARTHEST_S
    if seconds >= 2 * DAY_S:
        return _days(round(seconds / DAY_S))
    if seconds >= 2 * HOUR_S:
        return tr("{n} h", n=round(seconds / HOUR_S))
    if seconds >= 2 * MINUTE_S:
        return tr("{n} min", n=round(seconds / MINUTE_S))
    return tr("{n} s", n=f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}")


def rough_words(seconds: float) -> str:
    """ "3 days", "1 hour", "5 minutes", "less than a minute": whole units, rounded down."""
    seconds = seconds if seconds < FARTHEST_S else FARTHEST_S
    if seconds >= DAY_S:
        return _days(int(seconds // DAY_S))
    if seconds >= HOUR_S:
        return trn("{n} hour", "{n} hours", int(seconds // HOUR_S))
    if seconds >= MINUTE_S:
        return trn("{n} minute", "{n} minutes", int(seconds // MINUTE_S))
    return tr("less than a minute")


def step_words(step: int, max_steps: int | None) -> str:
    """ "step 1,200 of 5,000", for a sentence."""
    if not max_steps:
        return tr("step {step}", step=f"{step:,}")
    return tr("step {step} of {max_steps}", step=f"{step:,}", max_steps=f"{max_steps:,}")


def _days(count: int) -> str:
    return trn("{n} day", "{n} days", count, n=f"{count:,}")
