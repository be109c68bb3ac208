"""What can be done to a run from a viewer, what each action costs, and the doing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.attempts import ACCUMULATION, Phase, changes_now, read_phase
from trainwiz.core.run.checkpoints import PROGRESS_JSON, TRAINER_STATE, complete_checkpoints, list_checkpoints
from trainwiz.core.run.folder import LAUNCH_SH, RunFolder, name_for_commands, read_json
from trainwiz.core.run.state import RunState, read_fields, read_state
from trainwiz.core.text import numbers_finite, object_in, whole_in

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action, Snapshot


# StopWindow: how long a graceful stop of a run may take, and why so long.
#
# A stop with a checkpoint waits for the work under way and then for the save. The window is
#
#     FLOOR_S + margin * longest recent work + SAVES * last save
#
# in seconds, from the lines of metrics.jsonl and the files of the newest checkpoint; before anything was
# measured, from the plan with wider margins. What still runs after it is killed.

FLOOR_S = 60.0
"""For what nobody measures: the agreement of the processes, their end, a disk that is busy."""
MEASURED_MARGIN = 1.25
PLANNED_MARGIN = 2.0
SAVES = 2.0
"""One that may just have begun on a disk that is slower today."""
RECENT_LINES = 20
METRICS_WINDOW_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class StopWindow:
    """All in seconds."""

    window_s: float
    """After this the keeper ends what is left, with or without a checkpoint."""
    work: str = "step"
    """What is finished before the save: several processes finish the optimizer step ("step"); a single one drops its
    accumulation window after the present micro-batch ("micro_step")."""
    work_s: float | None = None
    """The longest time until the save begins; None where neither plan nor measurement says."""
    step_s: float | None = None
    """The longest recent optimizer step: what a single process computes again after it dropped one."""
    save_s: float | None = None
    source: str = "planned"
    """Or "measured"."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> StopWindow | None:
        """None where the document does not describe a window."""
        found = read_fields(cls, document)
        return cls(**found) if 0 <= found.get("window_s", -1.0) < float("inf") else None


def window_of(
    step_s: float | None, save_s: float | None, *, accumulation: int, processes: int, measured: bool
) -> StopWindow:
    """The window for the longest step and the last save of `processes` that accumulate `accumulation` micro-batches."""
    alone = processes == 1
    work_s = step_s / max(accumulation, 1) if step_s is not None and alone else step_s
    margin = MEASURED_MARGIN if measured else PLANNED_MARGIN
    seconds = FLOOR_S + margin * (work_s or 0.0) + SAVES * (save_s or 0.0)
    return StopWindow(
        seconds, "micro_step" if alone else "step", work_s, step_s, save_s, "measured" if measured else "planned"
    )


def read_window(run: RunFolder, world_size: Any, planned: StopWindow | None) -> StopWindow | None:
    """The window now; `planned` (with the step and the save of the plan) until a step was measured.

    `world_size` is that of the engine that runs; anything but a number counts as the planned one.
    """
    steps_s = list(islice(_recent_steps_s(run), RECENT_LINES))
    if not steps_s:
        return planned
    # As they run, else as recovery changed them, else as they were planned.
    batch = object_in((read_json(run.plan_json) or {}).get("batch"))
    processes = whole_in(world_size) or whole_in(batch.get("world_size")) or 1
    accumulation = whole_in(changes_now(run).get(ACCUMULATION)) or whole_in(batch.get("accumulation")) or 1
    save_s = last_save_s(run.path)
    if save_s is None and planned is not None:
        save_s = planned.save_s
    return window_of(max(steps_s), save_s, accumulation=accumulation, processes=processes, measured=True)


def _recent_steps_s(run: RunFolder) -> Iterator[float]:
    """The newest first."""
    for row in objects_from_the_end(run.metrics_jsonl, METRICS_WINDOW_BYTES):
        step_s = numbers_finite(row.get("step_s"))
        if step_s is not None:
            yield step_s
        if "resumed_from" in row:
            # Another attempt may have another micro-batch.
            return


def renew_window(run: RunFolder, state: RunState) -> StopWindow | None:
    """Put the window as it is now into the state; it stays as it is until a step was measured."""
    window = read_window(run, state.engine.get("world_size"), StopWindow.from_json(state.window))
    if window is not None:
        state.grace_s, state.window = window.window_s, window.to_json()
    return window


def last_save_s(folder: Path) -> float | None:
    """How long the newest whole save of a run folder took: from the first file that the training writes into it to the
    last one; None without one."""
    took_s = []
    for path in folder.glob("checkpoint-*"):
        with suppress(OSError):
            last_s = (path / TRAINER_STATE).stat().st_mtime
            took_s.append((last_s, last_s - (path / PROGRESS_JSON).stat().st_mtime))
    return max(0.0, max(took_s)[1]) if took_s else None


# StopCost: what a stop of a run costs, with a checkpoint and without one.


@dataclass(frozen=True, slots=True)
class StopCost:
    """Seconds and steps; None where nothing was planned or measured yet."""

    wait_s: float | None
    """The longest time until the checkpoint is begun."""
    checkpoint: str | None
    """Name of the newest complete checkpoint: what a stop at once falls back to."""
    lost_steps: int | None
    """Steps since then."""
    lost_s: float | None
    save_s: float | None = None
    phase: Phase | None = None
    """What the training does now, where it says so."""
    waits_to_start: bool = False
    """An attempt has failed, and the keeper waits before the next one."""


def stop_cost(folder: RunFolder, snapshot: Snapshot | None = None) -> StopCost:
    """From measured steps and saves, and the checkpoints that are there; `snapshot` tells the steps since the last one.

    A single process leaves its accumulation window as it stands after the present micro-batch;
    several finish the step together.
    """
    state = read_state(folder)
    window = renew_window(folder, state)
    complete = complete_checkpoints(folder)
    lost_steps = lost_s = None
    if snapshot is not None and snapshot.step is not None:
        lost_steps = max(0, snapshot.step - (complete[-1].step if complete else 0))
        per_step_s = snapshot.pace.wall_step_s or snapshot.pace.step_s
        lost_s = None if per_step_s is None else lost_steps * per_step_s
    # What an earlier attempt said of itself does not count.
    last, said = state.newest, read_phase(folder)
    is_of_now = said is not None and (last is None or said.since_s >= last.started_s)
    return StopCost(
        wait_s=window.work_s if window else None,
        checkpoint=complete[-1].path.name if complete else None,
        lost_steps=lost_steps,
        lost_s=lost_s,
        save_s=window.save_s if window else None,
        phase=said.phase if said is not None and is_of_now else None,
        waits_to_start=state.status == "starting" and last is not None and last.ended_s is not None,
    )


# Actions: what can be done to a run from a viewer, what each would cost, and the doing. Draws nothing.

ALLOWED: Mapping[str, tuple[Action, ...]] = {
    "starting": ("stop", "stop_now"),
    "running": ("stop", "stop_now"),
    "stopping": ("stop_now",),
    "finished": ("model",),
    **dict.fromkeys(("failed", "stopped", "lost"), ("resume",)),
}
"""Status -> what can be done beside what always can. A run that was never started is started by its launch.sh, not
resumed: no training has begun."""


def allowed(state: RunState) -> frozenset[Action]:
    return frozenset({"plan", "command", *ALLOWED.get(state.status, ())})


def why_not(action: Action, snapshot: Snapshot | None, *, readonly: bool = False) -> str:
    """One sentence that says why `action` cannot be done from here; empty where it can."""
    if readonly and action not in ("plan", "command"):
        return tr("This monitor is read-only: reopen it without --readonly to control the run.")
    if snapshot is None:
        return tr("The run is still being loaded.")
    if action in snapshot.actions:
        return ""
    if snapshot.replayed_s is not None:
        return tr("This is a replay: the run has ended. Open it without --replay to control it.")
    if snapshot.source != "run":
        return tr(
            "This job was not started by trainwiz: you can monitor it here, but only control it where it was started."
        )
    if action == "resume" and snapshot.status == "prepared":
        return tr("This run was never started: start it with `bash {script}` in its folder.", script=LAUNCH_SH)
    return tr("Not possible now: the run is {status}.", status=tr(snapshot.status))


def stop(folder: RunFolder, *, now: bool) -> None:
    """Ask the run to stop; does not wait for its end. Raises CannotRunError for a run that cannot be reached."""
    from trainwiz.core.launch.start import stop_run

    stop_run(folder, now=now, wait_s=0.0)


def resume_start(folder: RunFolder) -> str:
    """Where a resumed run would go on, in one sentence. Changes nothing."""
    complete = complete_checkpoints(folder)
    broken = [found.path.name for found in list_checkpoints(folder) if found.problem is not None]
    start = tr("No complete checkpoint: training restarts from the beginning.")
    if complete:
        start = tr("It resumes from {name} (step {step}).", name=complete[-1].path.name, step=f"{complete[-1].step:,}")
    if not broken:
        return start
    return tr("{start} {names} is incomplete and will be set aside.", start=start, names=", ".join(broken))


def resume(folder: RunFolder) -> None:
    """Start the keeper again, detached, as `trainwiz runs resume --detach` does.

    Raises UsageError for an active run, CannotRunError when the keeper does not start.
    """
    from trainwiz.core.launch.start import start_run

    start_run(folder, resume="auto")


def commands_of(folder: RunFolder, actions: frozenset[Action]) -> dict[str, str]:
    """What each command does -> the command, for a shell, the exact launch first."""
    name, launch = name_for_commands(folder.path), launch_line(folder)
    commands = {}
    if launch is not None:
        path = folder.path.resolve()
        commands[tr("start the training manually")] = f"bash {shlex.quote(str(path / LAUNCH_SH))}"
        commands[tr("the command this runs")] = f"cd {shlex.quote(str(path))} && {launch}"
        if "runs join" in launch:
            commands[tr("the commands for each machine")] = f"trainwiz export {name} --script"
    if "resume" in actions:
        commands[tr("resume it")] = f"trainwiz runs resume {name}"
    if "stop" in actions:
        commands[tr("stop it")] = f"trainwiz runs stop {name}"
    commands[tr("monitor it")] = f"trainwiz monitor {name}"
    if "model" in actions:
        # This reads run.yaml, which the monitor of an active run does not need.
        from trainwiz.core.model.found import next_commands

        commands |= next_commands(folder)
    return commands


def launch_line(folder: RunFolder) -> str | None:
    """The command that launch.sh ends in, on one line; None where there is no such script."""
    with suppress(OSError):
        text = read_small(folder.file(LAUNCH_SH)).decode(errors="replace")
        for line in reversed(text.replace("\\\n", " ").splitlines()):
            if line.startswith("exec "):
                return " ".join(line.removeprefix("exec ").replace('"$@"', "").split())
    return None
