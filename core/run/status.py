"""The states of a run."""

from __future__ import annotations

from typing import Literal

RunStatus = Literal["prepared", "starting", "running", "stopping", "finished", "failed", "stopped", "lost"]

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped", "lost"})
ACTIVE: frozenset[str] = frozenset({"starting", "running", "stopping"})
