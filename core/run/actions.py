"""Actions: what can be done to a run from a viewer, what each would cost, and the doing. Draws nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import LAUNCH_SH, RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState
from trainwiz.core.run.status import ENDED
from trainwiz.core.small_file import read_small

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action, Snapshot

READ_ONLY: dict[str, str] = {
    "stop": mark("This monitor is read-only: open it without --readonly to stop the run."),
    "stop_now": mark("This monitor is read-only: open it without --readonly to stop the run."),
    "resume": mark("This monitor is read-only: open it without --readonly to go on with the run."),
}


def allowed(state: RunState) -> frozenset[Action]:
    """What can be done to a run in this state.

    A run that was never started is started by its launch.sh, not resumed: no training has begun.
    """
    always: set[Action] = {"plan", "command"}
    if state.is_active:
        return frozenset({*always, "stop_now"} | ({"stop"} if state.status != "stopping" else set()))
    if state.status in ENDED and state.status != "finished":
        return frozenset({*always, "resume"})
    return frozenset(always)


def why_not(action: Action, snapshot: Snapshot | None, *, readonly: bool = False) -> str:
    """One sentence that says why `action` cannot be done from here; empty where it can."""
    if readonly and action not in ("plan", "command"):
        return tr(READ_ONLY.get(action, READ_ONLY["stop"]))
    if snapshot is None:
        return tr("The run is still being read.")
    if action in snapshot.actions:
        return ""
    if snapshot.replayed_s is not None:
        return tr("This is a replay: the run has ended. Open it without --replay to act on it.")
    if snapshot.source != "run":
        return tr(
            "This job was not started by trainwiz: it can be watched from here, and steered where it was started."
        )
    status = tr(snapshot.status)
    if action in ("stop", "stop_now"):
        return tr("There is nothing to stop: the run is {status}.", status=status)
    if action == "resume" and snapshot.status == "prepared":
        return tr("This run was never started: `bash {script}` in its folder starts it.", script=LAUNCH_SH)
    return tr("That cannot be done now: the run is {status}.", status=status)


def stop(folder: RunFolder, *, now: bool) -> None:
    """Ask the run to stop; does not wait for its end. Raises CannotRunError for a run that cannot be reached."""
    from trainwiz.core.launch.stop import stop_run

    stop_run(folder, now=now, wait_s=0.0)


def resume_start(folder: RunFolder) -> str:
    """Where a resumed run would go on, in one sentence. Changes nothing."""
    checkpoints = list_checkpoints(folder)
    complete = [found for found in checkpoints if found.problem is None]
    broken = [found.path.name for found in checkpoints if found.problem is not None]
    start = tr("There is no complete checkpoint: the training starts again from the beginning.")
    if complete:
        newest = complete[-1]
        start = tr("It goes on from {name} (step {step}).", name=newest.path.name, step=f"{newest.step:,}")
    if not broken:
        return start
    return tr("{start} {names} is not complete and will be set aside.", start=start, names=", ".join(broken))


def resume(folder: RunFolder) -> None:
    """Start the keeper again, detached, as `trainwiz runs resume --detach` does.

    Raises UsageError for an active run, CannotRunError when the keeper does not start.
    """
    from trainwiz.core.launch.start import start_run

    start_run(folder, resume="auto")


def commands_of(folder: RunFolder, actions: frozenset[Action]) -> dict[str, str]:
    """What each command does -> the command, for a shell, the exact launch first."""
    name = name_for_commands(folder.path)
    script = folder.file(LAUNCH_SH)
    commands = {}
    if script.is_file():
        commands[tr("the training by hand")] = f"bash {shlex.quote(str(script.resolve()))}"
    launch = launch_line(folder)
    if launch:
        commands[tr("what that runs")] = f"cd {shlex.quote(str(folder.path.resolve()))} && {launch}"
    if launch and "runs join" in launch:
        commands[tr("what to type on each machine")] = f"trainwiz export {name} --script"
    if "resume" in actions:
        commands[tr("go on with it")] = f"trainwiz runs resume {name}"
    if "stop" in actions:
        commands[tr("stop it")] = f"trainwiz runs stop {name}"
    commands[tr("watch it")] = f"trainwiz monitor {name}"
    return commands


def launch_line(folder: RunFolder) -> str | None:
    """The command that launch.sh ends in, on one line; None where there is no such script."""
    try:
        text = read_small(folder.file(LAUNCH_SH)).decode(errors="replace")
    except OSError:
        return None
    for line in reversed(text.replace("\\\n", " ").splitlines()):
        if line.startswith("exec "):
            return " ".join(line.removeprefix("exec ").replace('"$@"', "").split())
    return None
