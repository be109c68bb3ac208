"""Moments in words: a Unix time as this machine's calendar and clock have it."""

from __future__ import annotations

import time

from trainwiz.core.language import tr

DATE_AND_MINUTE = "%Y-%m-%d %H:%M"
FARTHEST_S = 1e15
"""Thirty million years: what is farther from now is no time, whatever a clock may have said."""


def is_moment(time_s: float) -> bool:
    """Whether it is a Unix time at all; files may hold anything."""
    return -FARTHEST_S < time_s < FARTHEST_S


def moment_words(time_s: float, form: str = DATE_AND_MINUTE) -> str:
    """Local time in the words of time.strftime; "an unknown time" for one that no calendar has, as files may hold."""
    try:
        return time.strftime(form, time.localtime(time_s))
    except (OverflowError, ValueError, OSError):
        return tr("an unknown time")
