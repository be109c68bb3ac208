"""What a panel says where nothing is known: the reason that the source gives, else what is to be expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

NO_SAMPLE = mark("No sample of the machine yet; they come while the run lives.")
NOT_HERE = mark("The files do not say which machine trains, and no process of the job was found on this one.")
NO_PACE = mark("No pace yet: it comes with the first logged step.")
SHORT = mark("Nothing is known of its processes, RAM and disk.")
"""Where the panel of the device beside it has the reason already."""


def machine_reason(snapshot: Snapshot) -> str:
    """Why nothing is known of the machine and the processes."""
    for key in ("machine", "processes", "host"):
        if snapshot.unavailable.get(key):
            return plain_text(snapshot.unavailable[key], 300)
    return tr(NO_SAMPLE) if snapshot.source == "run" else tr(NOT_HERE)


def pace_reason(snapshot: Snapshot) -> str:
    """Why no tokens a second are known."""
    if snapshot.unavailable.get("pace"):
        return plain_text(snapshot.unavailable["pace"], 300)
    if snapshot.source == "run":
        return tr(NO_PACE) if snapshot.ending is None else tr("No tokens/s were logged.")
    return tr("No tokens/s: this job logs none.")
