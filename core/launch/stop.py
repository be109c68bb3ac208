"""stop_run: ask the keeper of a run to stop it."""

from __future__ import annotations

import os
import signal
import time

from trainwiz.core.errors import CannotRunError
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.processid import machine_identity
from trainwiz.core.run.state import RunState, read_state

POLL_S = 0.1
AFTER_GRACE_S = 30.0


def stop_run(folder: RunFolder, *, now: bool = False, wait_s: float | None = None) -> RunState:
    """Stop an active run: finish the step, save, end; with `now` end at once without a checkpoint.

    Waits until it has ended, at most `wait_s` seconds (None: as long as a graceful stop may take),
    and returns the state then. A run that is not active is left as it is. Asking twice for a
    graceful stop is the same as asking once. Raises CannotRunError for a run on another machine.
    """
    state = read_state(folder)
    if not state.is_active or state.supervisor is None:
        return state
    if state.machine != machine_identity():
        command = f"trainwiz runs stop {name_for_commands(folder.path)}"
        message = tr(
            "{name} runs on {host}; stop it there: {command}", name=folder.path.name, host=state.host, command=command
        )
        raise CannotRunError(Finding("run_elsewhere", "error", str(folder.path), message))
    if now:
        _send(state, signal.SIGUSR1)
    elif state.stop is None:
        _send(state, signal.SIGTERM)
    patience_s = state.grace_s + AFTER_GRACE_S if wait_s is None else wait_s
    deadline = time.monotonic() + patience_s
    while state.is_active and time.monotonic() < deadline:
        time.sleep(POLL_S)
        state = read_state(folder)
    return state


def _send(state: RunState, number: int) -> None:
    supervisor = state.supervisor
    if supervisor is None or not supervisor.is_alive():
        return
    try:
        os.kill(supervisor.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        message = tr("{name} belongs to another user; only that user can stop it.", name=state.name)
        raise CannotRunError(Finding("not_your_run", "error", state.name, message)) from None
