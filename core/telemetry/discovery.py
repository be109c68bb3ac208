"""What there is to look at on this machine: the runs of this user, and trainings that were started elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import RunSummary, list_runs, summarize_run
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.registry import recorded_runs
from trainwiz.core.run.state import read_state
from trainwiz.core.run.status import ACTIVE
from trainwiz.core.telemetry.job import Job, job_of, members_of, training_tops
from trainwiz.core.telemetry.process_facts import working_folder
from trainwiz.core.telemetry.process_table import ProcessTable
from trainwiz.core.telemetry.shown_command import short_command
from trainwiz.core.telemetry.target import Target

MOST_RUNS = 100
"""Rows of runs that have ended; all that run are listed."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that can be watched: a row of the list that `trainwiz monitor` shows."""

    target: Target
    status: str
    """Of a run its state; "running" for a process."""
    what: str
    """What it is, in a few words: the model of a run, the command of a process (secrets left out)."""
    started_s: float | None = None
    ended_s: float | None = None
    step: int | None = None
    max_steps: int | None = None
    loss: float | None = None
    gpus: tuple[int, ...] = ()
    """The cards on which a process computes, where NVML tells."""

    @property
    def runs_now(self) -> bool:
        return self.status in ACTIVE

    def to_json(self) -> dict[str, Any]:
        """The row of `trainwiz monitor --json` where there is more than one thing to watch."""
        return {
            "source": self.target.kind,
            "name": self.target.name,
            "path": str(self.target.path),
            "pid": self.target.pid,
            "status": self.status,
            "what": self.what,
            "started_s": self.started_s,
            "ended_s": self.ended_s,
            "step": self.step,
            "max_steps": self.max_steps,
            "loss": self.loss,
            "gpus": list(self.gpus),
        }


def list_targets(root: Path = DEFAULT_ROOT) -> list[Found]:
    """All that can be watched: what is running first, then runs that have ended, the newest first."""
    runs = [_found_run(summary) for summary in _all_runs(root)]
    running = [found for found in runs if found.runs_now]
    ended = [found for found in runs if not found.runs_now]
    jobs = list_jobs([RunFolder(found.target.path) for found in running])
    running += [found for found in jobs if found.target.kind == "process" or not _listed(found, running)]
    return [
        *sorted(running, key=lambda found: found.started_s or 0.0, reverse=True),
        *sorted(ended, key=lambda found: found.started_s or 0.0, reverse=True)[:MOST_RUNS],
    ]


def default_target(found: Iterable[Found]) -> Target | None:
    """What opens without a choice: the only one that is running; where none is, the only run there is; else None."""
    found = list(found)
    candidates = [one for one in found if one.runs_now] or found
    return candidates[0].target if len(candidates) == 1 else None


def _all_runs(root: Path) -> list[RunSummary]:
    """Those below `root`, and those that were started elsewhere."""
    here = list_runs(root)
    known = {Path(run.path).resolve() for run in here}
    return here + [summarize_run(folder) for folder in recorded_runs() if folder.path.resolve() not in known]


def _found_run(run: RunSummary) -> Found:
    return Found(
        target=Target.of_run(RunFolder(Path(run.path))),
        status=run.status,
        what=run.model or "",
        started_s=run.started_s or run.created_s,
        ended_s=run.ended_s,
        step=run.step,
        max_steps=run.max_steps,
        loss=run.loss,
    )


def _listed(found: Found, others: Iterable[Found]) -> bool:
    place = found.target.path.resolve()
    return any(other.target.kind == "run" and other.target.path.resolve() == place for other in others)


def list_jobs(active_runs: Iterable[RunFolder] = ()) -> list[Found]:
    """The trainings that run on this machine, as far as this user sees them: one row for each job.

    A job of a run of ours stands as that run. `active_runs`: runs whose own record names their processes.
    """
    from trainwiz.core.telemetry.gpu_jobs import cards

    computing: dict[int, list[int]] = {}
    for card in cards()[0]:
        for pid in card.pids:
            computing.setdefault(pid, []).append(card.index)
    table = ProcessTable()
    keepers = _keepers(active_runs)
    rows, seen = [], set[int]()
    for top in training_tops(table, computing):
        job = None if top in seen else job_of(top, table)
        if job is None:
            continue
        members = {pid for root in job.roots for pid in members_of(root.pid, table)}
        seen |= members
        run = job.run or next((keepers[pid] for pid in members if pid in keepers), None)
        gpus = sorted({index for pid in members for index in computing.get(pid, ())})
        rows.append(_found_run(summarize_run(run)) if run else _found_job(job, table, gpus))
    return rows


def _keepers(runs: Iterable[RunFolder]) -> Mapping[int, RunFolder]:
    """Process that keeps the run -> its folder: a run that was started by hand has no keeper of its own above it."""
    found = {}
    for run in runs:
        keeper = read_state(run).supervisor
        if keeper is not None and keeper.is_alive():
            found[keeper.pid] = run
    return found


def _found_job(job: Job, table: ProcessTable, gpus: Iterable[int]) -> Found:
    return Found(
        target=target_of_job(job),
        status="running",
        what=short_command(table.command(job.pid)),
        started_s=job.started_s,
        gpus=tuple(gpus),
    )


def target_of_job(job: Job) -> Target:
    """The run where it is one of ours, else the processes."""
    if job.run is not None:
        return Target.of_run(job.run)
    root = job.roots[0]
    folder = working_folder(root.pid) or Path("/")
    return Target(
        "process", folder, tr("{name} · process {pid}", name=job.name, pid=root.pid), root.pid, root.create_time
    )


def find_target(text: str | None) -> Target:
    """What `text` means: a run's name, a path, a process number, "gpu" or "gpu:0"; None what is running or newest.

    Raises UsageError in one sentence, with the nearest names.
    """
    from trainwiz.core.telemetry.meaning import meaning_of, only_one

    return only_one(list_targets()) if text is None else meaning_of(text)
