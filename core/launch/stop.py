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
from trainwiz.core.run.processid import ProcessId, machine_identity, stat_fields
from trainwiz.core.run.state import RunState, read_state

POLL_S = 0.1
SELDOM_S = 0.5
QUICK_S = 10.0
"""After this the wait is a long one and is looked at seldom."""
AFTER_GRACE_S = 30.0
FORCE_AFTER_S = 25.0
"""A keeper that runs kills all of a run in less."""


def stop_run(folder: RunFolder, *, now: bool = False, wait_s: float | None = None) -> RunState:
    """Stop an active run: finish the step, save, end; with `now` end at once without a checkpoint.

    Waits until it has ended, at most `wait_s` seconds (None: as long as a graceful stop may take),
    and returns the state then. A run that is not active is left as it is. Asking twice for a
    graceful stop is the same as asking once. Raises CannotRunError for a run on another machine or
    of another user.
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
        _send(folder, state.supervisor, signal.SIGUSR1)
    elif state.stop is None:
        _send(folder, state.supervisor, signal.SIGTERM)
    if is_suspended(state.supervisor):
        # What was sent waits until then.
        _send(folder, state.supervisor, signal.SIGCONT)
    return wait_for_end(folder, wait_s, force=now)


def is_suspended(process: ProcessId) -> bool:
    """Whether it was stopped in its tracks (SIGSTOP, Ctrl-Z, a debugger), so that it heeds nothing. Linux only."""
    fields = stat_fields(process.pid) if process.is_alive() else None
    return fields is not None and fields[0] in ("T", "t")


def wait_for_end(folder: RunFolder, wait_s: float | None = None, *, force: bool = False) -> RunState:
    """The state once the run has ended, or after `wait_s` seconds; None: as long as a graceful stop may take.

    That may grow meanwhile: the keeper reckons the window of the stop again as it measures. With `force` a keeper that
    has not ended the run in FORCE_AFTER_S is killed, and its guard ends all the processes of the run.
    """
    began = time.monotonic()
    while True:
        state = read_state(folder)
        waited_s = time.monotonic() - began
        if force and waited_s >= FORCE_AFTER_S and state.is_active and state.supervisor is not None:
            _send(folder, state.supervisor, signal.SIGKILL)
            force = False
        patience_s = state.grace_s + AFTER_GRACE_S if wait_s is None else wait_s
        if not state.is_active or waited_s >= patience_s:
            return state
        time.sleep(POLL_S if waited_s < QUICK_S else SELDOM_S)


def _send(folder: RunFolder, keeper: ProcessId, number: int) -> None:
    """A signal to the keeper and to no process that has its number since."""
    try:
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(keeper.pid)
            try:
                if keeper.is_alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
        elif keeper.is_alive():
            os.kill(keeper.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        message = tr("{name} belongs to another user; only that user can stop it.", name=folder.path.name)
        raise CannotRunError(Finding("not_your_run", "error", folder.path.name, message)) from None
