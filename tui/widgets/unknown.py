"""What a panel says where nothing is known: the reason that the source gives, else what is to be expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.plain import plain_text

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

NO_SAMPLE = "No sample of the machine yet; they come while the run lives."
NOT_HERE = "The files do not say which machine trains, and no process of the job was found on this one."
NO_PACE = "No pace yet: it comes with the first logged step."
SHORT = "Nothing is known of its processes, RAM and disk."
"""Where the panel of the device beside it has the reason already."""


def machine_reason(snapshot: Snapshot) -> str:
    """Why nothing is known of the machine and the processes."""
    for key in ("machine", "processes", "host"):
        if snapshot.unavailable.get(key):
            return plain_text(snapshot.unavailable[key], 300)
    return NO_SAMPLE if snapshot.source == "run" else NOT_HERE


def pace_reason(snapshot: Snapshot) -> str:
    """Why no tokens a second are known."""
    if snapshot.unavailable.get("pace"):
        return plain_text(snapshot.unavailable["pace"], 300)
    if snapshot.source == "run":
        return NO_PACE if snapshot.ending is None else "No tokens/s were logged."
    return "No tokens/s: this job logs none."
