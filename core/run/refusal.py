"""Why a run folder cannot be started or gone on with now: one sentence for each state, with the next step."""

from __future__ import annotations

import platform

from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.lock import look_at_lock
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState
from trainwiz.core.run.unread import newer_schema


def why_not_start(run: RunFolder, state: RunState, *, resume: bool, lock_is_mine: bool = False) -> str | None:
    """None when a start may be tried; who starts takes the lock, and asks again when it holds it."""
    name, typed = run.path.name, name_for_commands(run.path)
    newer = newer_schema(run, read_json(run.state_json) or {})
    if newer:
        return tr("{problem} Update trainwiz to go on with {name}.", problem=newer, name=name)
    if state.status == "stopping":
        return tr(
            "{name} is being stopped. When it has ended, go on with: trainwiz runs resume {typed}",
            name=name,
            typed=typed,
        )
    if state.is_active:
        return _active(run, state)
    if resume and state.status == "finished":
        return tr("{name} has finished; there is nothing to resume.", name=name)
    if not lock_is_mine and look_at_lock(run.path) == "held":
        return being_cleared_up(run)
    if not resume and state.status != "prepared":
        return tr(
            "{name} was started before ({status}). Go on with: trainwiz runs resume {typed}",
            name=name,
            status=tr(state.status),
            typed=typed,
        )
    return None


def being_cleared_up(run: RunFolder) -> str:
    """Somebody holds the lock of a run that is not active."""
    return tr(
        "{name} is being started or cleared up at this moment; try again in some seconds: trainwiz runs resume {typed}",
        name=run.path.name,
        typed=name_for_commands(run.path),
    )


def _active(run: RunFolder, state: RunState) -> str:
    name, typed = run.path.name, name_for_commands(run.path)
    if state.host is None or state.host == platform.node():
        return tr("{name} runs already. Watch it with: trainwiz monitor {typed}", name=name, typed=typed)
    return tr(
        "{name} runs already on {host}. Watch it with: trainwiz monitor {typed}",
        name=name,
        host=state.host,
        typed=typed,
    )
