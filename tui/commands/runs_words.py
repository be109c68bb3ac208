"""What the commands about runs have in common: the mark of a state, steps and moments in words."""

from __future__ import annotations

from trainwiz.core.language import tr
from trainwiz.core.moments import moment_words
from trainwiz.core.run.listing import RunSummary
from trainwiz.tui.figures import count

MARKS: dict[str, tuple[str, str]] = {
    "prepared": ("·", "quiet"),
    "starting": ("●", "note"),
    "running": ("●", "note"),
    "stopping": ("●", "warning"),
    "finished": ("✓", "good"),
    "stopped": ("!", "warning"),
    "failed": ("✗", "error"),
    "lost": ("✗", "error"),
}
"""State -> its sign and its colour."""
WIDEST_VALUE = 36


def steps(run: RunSummary) -> str:
    """How far it is, of how many."""
    if run.step is None:
        return "-"
    if not run.max_steps:
        return count(run.step)
    return tr("{amount} of {whole}", amount=count(run.step), whole=count(run.max_steps))


def moment(time_s: float | None) -> str:
    return "-" if time_s is None else moment_words(time_s)
