"""Garbage: Python's collector rests while the wizard is loaded. It would look some eighty times through what stays."""

from __future__ import annotations

import gc


def collect_nothing() -> None:
    """Until `collect_again`: for the way to a first frame, on which nearly nothing becomes garbage."""
    gc.disable()


def collect_again() -> None:
    """The frame is there. What was loaded for it is looked through no more; where the collector did not rest, nothing."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
