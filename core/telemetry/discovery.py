"""Trainings on this machine, what a folder is, and what somebody named -> the Target that is watched."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.files import at_home, is_file, is_folder, open_file
from trainwiz.core.language import tr
from trainwiz.core.run.folder import DEFAULT_ROOT, RunFolder
from trainwiz.core.run.listing import (
    RunSummary,
    find_run,
    list_runs,
    list_runs_elsewhere,
    recorded_runs,
    run_folders,
    summarize_run,
)
from trainwiz.core.run.state import ACTIVE
from trainwiz.core.telemetry.event_file import EVENT_MARK, HEADER_BYTES, EventFileTail
from trainwiz.core.telemetry.job import Job, job_of, members_of, training_tops, trainings_below
from trainwiz.core.telemetry.processes import ProcessTable, working_folder
from trainwiz.core.telemetry.snapshot import SourceKind
from trainwiz.core.telemetry.target import Target
from trainwiz.core.telemetry.trainer_files import (
    CHECKPOINT,
    LOG_ENDINGS,
    TRAINER_STATE,
    find_log,
    prints_metrics,
    read_trainer_state,
    state_files,
)
from trainwiz.core.telemetry.trainer_folder import find_scalar_files, names_arguments
from trainwiz.core.telemetry.words import first_of, short_command
from trainwiz.core.text import plain_text

# recognise: what a folder or file is to a monitor, or why it is nothing that can be watched.

NAMES_SHOWN = 4
LOG_FOLDERS = ("runs", "logs", "log", "logging", "tb", "tb_logs", "tensorboard")
MOST_FOLDERS_SEEN = 500


def recognise(path: Path) -> Target | str:
    """The target at `path`, or one sentence that says why there is none.

    A run folder of trainwiz; the output folder of a Trainer (also a checkpoint, and a folder that
    holds exactly one such folder); a folder of event files; one event file, trainer_state.json, or log
    with printed metrics.
    """
    try:
        if path.is_dir():
            return _folder(path)
        if path.is_file():
            return _file(path)
    except OSError as error:
        return tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
    return tr("{path} is neither a readable file nor a readable folder.", path=path)


def _folder(path: Path) -> Target | str:
    if RunFolder(path).is_run():
        return Target.of_run(RunFolder(path))
    if is_trainer_output(path):
        return _target("trainer", path)
    outputs = _below(path)
    if len(outputs) == 1:
        return _target("trainer", outputs[0])
    if outputs:
        return tr(
            "{path} contains the outputs of {n} trainings; specify one of them: {names}.",
            path=path,
            n=f"{len(outputs):,}",
            names=first_of([str(output.relative_to(path)) for output in outputs], NAMES_SHOWN),
        )
    refusals = [_refusal_of_scalars(file) for run in find_scalar_files(path).values() for file in run[:50]]
    if refusals:
        return refusals[0] if refusals[0] and all(refusals) else _target("tensorboard", path)
    if find_log(path) is not None:
        return _target("trainer", path)
    names = [file.name for file in path.iterdir()]
    if not names:
        return tr("{path} is empty: there is nothing to monitor.", path=path)
    for state in map(read_trainer_state, state_files(path)[:1]):
        if isinstance(state, str):
            return state
    said = tr(
        "{path} contains nothing to monitor: no trainwiz run, no TensorBoard event files, no {state} and no log "
        "with metrics printed by a Trainer.",
        path=path,
        state=TRAINER_STATE,
    )
    return _or_diagnose(said, path) if any(name.endswith(LOG_ENDINGS) for name in names) else said


def is_trainer_output(folder: Path) -> bool:
    """Whether transformers' Trainer writes there: a readable state, its arguments, or event files that name them."""
    if any(not isinstance(read_trainer_state(file), str) for file in state_files(folder)[:3]):
        return True
    if is_file(folder / "training_args.bin"):
        return True
    # transformers writes runs/<time>_<host>/ by default; torch's own SummaryWriter does so too, without arguments.
    logs = [inner for name in LOG_FOLDERS if is_folder(inner := folder / name) and not state_files(inner)]
    files = [run[0] for inner in logs for run in find_scalar_files(inner).values()]
    return any(map(names_arguments, files[-3:]))


def _below(path: Path) -> list[Path]:
    """Outputs of Trainers one and two levels below, not those inside of another."""
    found: list[Path] = []
    for folder in _subfolders(path):
        inner = [folder] if is_trainer_output(folder) else _subfolders(folder)
        found += [place for place in inner if place == folder or is_trainer_output(place)]
    return found


def _subfolders(path: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        inside = [place for place in sorted(path.iterdir()) if not place.name.startswith(".")]
        return [place for place in inside if place.is_dir() and not place.is_symlink()][:MOST_FOLDERS_SEEN]
    return []


def _file(path: Path) -> Target | str:
    open_file(path).close()
    if path.suffix == ".json":
        state = read_trainer_state(path)
        return state if isinstance(state, str) else _target("trainer", path, path.parent)
    refusal = _refusal_of_scalars(path)
    if EVENT_MARK in path.name or refusal is None:
        return refusal or _target("tensorboard", path)
    if prints_metrics(path):
        return _target("trainer", path)
    said = tr(
        "{path} cannot be monitored: it is not an event file, not a {state} and not a log with metrics printed by a "
        "Trainer.",
        path=path,
        state=TRAINER_STATE,
    )
    return _or_diagnose(said, path) if not path.suffix or path.name.endswith(LOG_ENDINGS) else said


def _or_diagnose(said: str, path: Path) -> str:
    """A log without metrics still says why a training ended."""
    command = shlex.join(["trainwiz", "diagnose", str(path)])
    return tr("{said} To see why a training ended: {command}", said=said, command=command)


def _refusal_of_scalars(path: Path) -> str | None:
    """Why an event file cannot be read; None where it can, or has only just been begun."""
    tail = EventFileTail(path)
    tail.read_new()
    is_new = not tail.offset and EVENT_MARK in path.name
    none_yet = tail.offset >= HEADER_BYTES and not tail.damaged_bytes
    if tail.refusal or tail.problem or tail.records or is_new or none_yet:
        return tail.refusal or tail.problem
    return tr("{path} is not a TensorBoard event file: it contains no complete record.", path=path)


def _target(kind: SourceKind, path: Path, named: Path | None = None) -> Target:
    """Its name for titles is that of `named`, else of `path`; a checkpoint with the folder above it."""
    whole = (named or path).resolve()
    return Target(kind, path, f"{whole.parent.name}/{whole.name}" if CHECKPOINT.match(whole.name) else whole.name)


# What there is to look at on this machine: the runs of this user, and trainings that were started elsewhere.

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
        target = self.target
        place = {"source": target.kind, "name": target.name, "path": str(target.path), "pid": target.pid}
        rest = {name: value for name, value in asdict(self).items() if name != "target"}
        return {**place, **rest, "gpus": list(self.gpus)}


def list_targets(root: Path = DEFAULT_ROOT) -> list[Found]:
    """All that can be watched: what is running first, then runs that have ended, the newest first."""
    runs = [found_run(summary) for summary in (*list_runs(root), *list_runs_elsewhere(root))]
    known = {found.target.path.resolve() for found in runs if found.runs_now}
    jobs = [job for job in list_jobs() if job.target.kind == "process" or job.target.path.resolve() not in known]
    found = sorted((*runs, *jobs), key=lambda found: found.started_s or 0.0, reverse=True)
    ended = [one for one in found if not one.runs_now]
    return [*(one for one in found if one.runs_now), *ended[:MOST_RUNS]]


def default_target(found: Iterable[Found]) -> Target | None:
    """What opens without a choice: the only one that is running; where none is, the only run there is; else None."""
    found = list(found)
    candidates = [one for one in found if one.runs_now] or found
    return candidates[0].target if len(candidates) == 1 else None


def found_run(run: RunSummary) -> Found:
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


def list_jobs() -> list[Found]:
    """The trainings that run on this machine, as far as this user sees them: one row for each job.

    A job of a run of ours stands as that run.
    """
    from trainwiz.core.telemetry.gpu import read_loads

    loads = read_loads().gpus
    table = ProcessTable()
    found = (job_of(top, table) for top in training_tops(table, {pid for load in loads for pid in load.computing}))
    rows = []
    for job in {job.pid: job for job in found if job is not None}.values():
        if job.run is not None:
            rows.append(found_run(summarize_run(job.run)))
            continue
        members = members_of(job.pid, table)
        gpus = tuple(load.index for load in loads if set(load.computing) & set(members))
        what = short_command(table.command(job.pid))
        rows.append(Found(target_of_job(job), "running", what, job.started_s, gpus=gpus))
    return rows


def target_of_job(job: Job) -> Target:
    """The run where it is one of ours, else the processes."""
    if job.run is not None:
        return Target.of_run(job.run)
    name = tr("{name} · process {pid}", name=job.name, pid=job.pid)
    return Target("process", working_folder(job.pid) or Path("/"), name, job.pid, job.started_s)


# find_target: what somebody named -> the Target that is watched.

_GPU = re.compile(r"gpu(?::(?P<card>.*))?", re.IGNORECASE)
LARGEST_PID = 2**31 - 1
LONGEST_SHOWN = 80


def find_target(text: str) -> Target:
    """The target. A name of a run comes first, then a process or card, a file or folder, a part of a run's name.

    Raises UsageError in one sentence when it is none of these, with the nearest names.
    """
    gpu = _GPU.fullmatch(text)
    if gpu is None and (run := _run_of(text, whole=True)) is not None:
        return Target.of_run(run)
    if gpu is not None:
        return _on_gpu(gpu["card"])
    if re.fullmatch(r"[0-9]+", text):
        return _of_process(int(text))
    path = at_home(Path(text))
    if text and os.path.lexists(path):
        beside = RunFolder(path.parent)
        found = Target.of_run(beside) if is_file(path) and beside.is_run() else recognise(path)
        if isinstance(found, Target):
            return found
        raise usage_error("not_watchable", text, found)
    if (run := _run_of(text)) is not None:
        return Target.of_run(run)
    raise _unknown(text)


def _run_of(text: str, *, whole: bool = False) -> RunFolder | None:
    try:
        return find_run(text, whole=whole)
    except UsageError as error:
        if whole or error.findings[0].code != "ambiguous_run":
            return None
        raise


def _of_process(pid: int) -> Target:
    """The job that the process belongs to. Raises UsageError where there is none, or several below a shell."""
    table = ProcessTable()
    job = job_of(pid, table) if 0 < pid <= LARGEST_PID else None
    # One of the kernel has no command line.
    if job is None or not table.command(pid):
        message = tr("Process {pid} does not exist, is not visible from here, or is part of the kernel.", pid=pid)
        raise usage_error("no_such_process", str(pid), message)
    below = trainings_below(pid, table)
    return _the_job(below if len(below) > 1 else [job.pid], table, tr("below process {pid}", pid=pid))


def _on_gpu(card: str | None) -> Target:
    """The job that computes on a card ("0"), or on any. Raises UsageError."""
    # Reading cards loads much that no other word needs.
    from trainwiz.core.telemetry.gpu import read_loads

    loads = read_loads()
    chosen = [load for load in loads.gpus if not card or str(load.index) == card]
    if not chosen:
        known = ", ".join(f"gpu:{load.index} ({load.name})" for load in loads.gpus) or loads.problem
        name = repr(card) if card else tr("here")
        message = tr("There is no GPU {name} to monitor: {known}.", name=name, known=known or tr("no GPU found"))
        raise usage_error("no_such_gpu", f"gpu:{card or ''}", message)
    where, table = tr("GPU {number}", number=card) if card else tr("the GPUs"), ProcessTable()
    pids = {pid for load in chosen for pid in load.computing if table.is_alive(pid)}
    if pids:
        return _the_job(pids, table, tr("on {place}", place=where))
    message = tr(
        "Nothing that is visible from here computes on {place}; processes of other users and containers are not.",
        place=where,
    )
    raise usage_error("idle_gpu", where, message)


def _the_job(pids: Iterable[int], table: ProcessTable, where: str) -> Target:
    """The only job of these processes. Raises UsageError where there are several."""
    jobs = list({job.pid: job for job in (job_of(pid, table) for pid in sorted(pids)) if job is not None}.values())
    if len(jobs) == 1:
        return target_of_job(jobs[0])
    place = where[:1].upper() + where[1:]
    message = tr(
        "{place} {n} jobs are running: {names}. Specify the number of one: trainwiz monitor {pid}",
        place=place,
        n=len(jobs),
        names=first_of([f"{job.pid} ({job.name})" for job in jobs], NAMES_SHOWN),
        pid=jobs[0].pid,
    )
    raise usage_error("several_jobs", place, message)


def _unknown(text: str) -> UsageError:
    """What is nothing, with the nearest names."""
    path = Path(text)
    known = [] if path.name != text else [run.path.name for run in (*recorded_runs(), *run_folders(DEFAULT_ROOT))]
    with contextlib.suppress(OSError):
        known += [entry.name for entry in at_home(path.parent).iterdir()]
    near = [str(path.parent / one) for one in difflib.get_close_matches(path.name, known, n=3, cutoff=0.5)]
    message = tr(
        "There is no run, file or process {name} that this user can see.", name=repr(plain_text(text, LONGEST_SHOWN))
    )
    if near:
        message = tr("{message} Did you mean {guess}?", message=message, guess=tr(" or ").join(near))
    else:
        message = tr("{message} `trainwiz monitor` lists what can be monitored.", message=message)
    return usage_error("no_such_target", text, message)
