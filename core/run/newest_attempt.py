"""The newest attempt of a run, with all that recovery has changed until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.recovery import read_recoveries
from trainwiz.core.run.state import Attempt


def newest_attempt(attempts: Sequence[Attempt], folder: RunFolder) -> Attempt | None:
    """A resume by hand keeps what an earlier attempt was given; what is written for the next one does not hold yet."""
    if not attempts:
        return None
    newest = attempts[-1]
    if newest.changes:
        return newest
    held = [entry.changes for entry in read_recoveries(folder) if entry.attempt <= newest.number]
    return replace(newest, changes=dict(held[-1])) if held else newest
