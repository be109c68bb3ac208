"""Phrases about a plan that the command, the wizard and the plan card share. Values in, plain text out."""

from __future__ import annotations

from trainwiz.tui.figures import duration, percent, short_count

SMALL_SHARE = 0.01
"""A part of the time below this share of the whole is not worth a word."""


MOST = 0.5
"""Fixed tables of positions and the like are not worth a word; adapters are."""


def trained_words(parameters: float | None, trainable: float | None) -> str:
    """ "42.0M of them trained, 0.6 %"; "" where most are, or where it is not known."""
    if not parameters or trainable is None or trainable > MOST * parameters:
        return ""
    return f"{short_count(trainable)} of them trained, {percent(trainable / parameters)}"


def length_words(task: str, source: int | None, target: int | None) -> str:
    """ "up to 256 source and 64 target tokens each"; "" for a task without targets."""
    if task != "seq2seq" or not source or not target:
        return ""
    return f"up to {source:,} source and {target:,} target tokens each"


def time_part_words(
    total_s: float | None, evaluation_s: float | None, generation_s: float | None, saving_s: float | None
) -> list[str]:
    """What the total holds beside steps: ["evaluation 12 min", "generation 3.2 h"]; small parts are left out.

    `generation_s` is a part of its own, not of `evaluation_s`.
    """
    parts = (("evaluation", evaluation_s), ("generation", generation_s), ("saving", saving_s))
    return [
        f"{name} {duration(seconds)}"
        for name, seconds in parts
        if seconds and total_s and seconds > SMALL_SHARE * total_s
    ]


def unknown_time_words(steps: int | None, step_s: float | None) -> str:
    """Why there is no total."""
    if step_s is None:
        return "unknown: the rate of this device is not known"
    return "unknown: how many steps there are is not known" if steps is None else "unknown"
