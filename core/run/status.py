"""The states of a run."""

from __future__ import annotations

from typing import Literal

from trainwiz.core.language import mark

RunStatus = Literal["prepared", "starting", "running", "stopping", "finished", "failed", "stopped", "lost"]

STATUS_WORDS: dict[RunStatus, str] = {
    "prepared": mark("prepared"),
    "starting": mark("starting"),
    "running": mark("running"),
    "stopping": mark("stopping"),
    "finished": mark("finished"),
    "failed": mark("failed"),
    "stopped": mark("stopped"),
    "lost": mark("lost"),
}
"""State -> its word for people, through `tr`. Files and --json have the state itself."""

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped", "lost"})
ACTIVE: frozenset[str] = frozenset({"starting", "running", "stopping"})
