"""The last writing of state.json, also on a full disk, and what the run leaves to the user's history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from trainwiz.core.run.folder import RunFolder, write_in_place
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.log import log

LAST_WRITES = 3


def write_last_state(run: RunFolder, state: RunState, write: Callable[[], bool]) -> None:
    """`write` says whether it could write the state as always; a folder that is gone is let go."""
    for _ in range(LAST_WRITES):
        if write():
            _remember(run, state)
            return
        if not run.path.is_dir():
            return
        time.sleep(1.0)
    # The disk is full and stays so: the blocks that the file has already can still be written.
    try:
        write_in_place(run.state_json, json.dumps(state.to_json()) + "\n")
    except OSError as error:
        log(f"The last state could not be written: {error}")


def _remember(run: RunFolder, state: RunState) -> None:
    """The pace and the peak of the run go into the user's history; it is no part of the run."""
    from trainwiz.core.history.run import record_run

    try:
        record_run(run, state)
    except Exception as error:  # noqa: BLE001 - the run has ended well or not, whatever becomes of the history
        log(f"The run could not be added to the history of measurements: {type(error).__name__}: {error}")
