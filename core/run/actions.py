"""Actions: what can be done to a run from a viewer, and what each would cost. Draws nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.run.state import RunState
from trainwiz.core.run.status import ENDED

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action


def allowed(state: RunState) -> frozenset[Action]:
    """What can be done to a run in this state.

    A run that was never started is started by its launch.sh, not resumed: it has no supervisor yet.
    """
    always: set[Action] = {"plan", "command", "note"}
    if state.is_active:
        return frozenset({*always, "stop_now"} | ({"stop"} if state.status != "stopping" else set()))
    if state.status in ENDED and state.status != "finished":
        return frozenset({*always, "resume"})
    return frozenset(always)
