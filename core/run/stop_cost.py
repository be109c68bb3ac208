"""StopCost: what a stop of a run costs, with a checkpoint and without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.phase import Phase, read_phase
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.run.stop_window import StopWindow, Work, processes_and_accumulation, read_window, window_of

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StopCost:
    """Seconds and steps; None where nothing was planned or measured yet."""

    wait_s: float | None
    """The longest time until the checkpoint is begun."""
    again_s: float | None
    """The most work of an unfinished step that a resumed run computes again after a stop with a checkpoint."""
    patience_s: float | None
    """After this long the keeper ends the run, with or without a checkpoint; None where there is none (launch.sh)."""
    checkpoint: str | None
    """Name of the newest complete checkpoint: what a stop at once falls back to."""
    lost_steps: int | None
    """Steps since then."""
    lost_s: float | None
    work: Work = "step"
    """What is finished before the save."""
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
    window = _window(folder, state, snapshot)
    complete = [found for found in list_checkpoints(folder) if found.problem is None]
    step = snapshot.step if snapshot is not None else None
    lost_steps = None if step is None else max(0, step - (complete[-1].step if complete else 0))
    per_step_s = None if snapshot is None else snapshot.pace.wall_step_s or snapshot.pace.step_s
    alone = window is not None and window.work == "micro_step"
    return StopCost(
        wait_s=window.work_s if window else None,
        again_s=(window.step_s if alone else 0.0) if window and window.step_s is not None else None,
        patience_s=None if state.attempts and state.mark is None else state.grace_s,
        checkpoint=complete[-1].path.name if complete else None,
        lost_steps=lost_steps,
        lost_s=None if lost_steps is None or per_step_s is None else lost_steps * per_step_s,
        work=window.work if window else "step",
        save_s=window.save_s if window else None,
        phase=phase_of_attempt(folder, state),
        waits_to_start=_waits_to_start(state),
    )


def phase_of_attempt(folder: RunFolder, state: RunState) -> Phase | None:
    """What the present attempt says of itself; what an earlier one said does not count."""
    said = read_phase(folder)
    began_s = state.attempts[-1].started_s if state.attempts else 0.0
    return said.phase if said is not None and said.since_s >= began_s else None


def _waits_to_start(state: RunState) -> bool:
    last = state.attempts[-1] if state.attempts else None
    return state.status == "starting" and last is not None and last.ended_s is not None


def _window(folder: RunFolder, state: RunState, snapshot: Snapshot | None) -> StopWindow | None:
    world_size = state.engine.get("world_size")
    window = read_window(folder, world_size, StopWindow.from_json(state.window))
    step_s = snapshot.pace.step_s if snapshot is not None else None
    if window is not None or step_s is None:
        return window
    processes, accumulation = processes_and_accumulation(folder, world_size)
    return window_of(step_s, None, accumulation=accumulation, processes=processes, measured=True)
