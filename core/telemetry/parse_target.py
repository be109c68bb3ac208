"""What somebody named -> the Target that is watched."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.files import at_home, is_file
from trainwiz.core.language import tr
from trainwiz.core.run.folder import DEFAULT_ROOT, RunFolder
from trainwiz.core.run.listing import recorded_runs, run_folders
from trainwiz.core.telemetry.discovery import list_jobs, recognise, target_of_job
from trainwiz.core.telemetry.job import Job, job_of, trainings_if_above
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.target import Target
from trainwiz.core.text import plain_text

if TYPE_CHECKING:
    from trainwiz.core.telemetry.gpu import GpuLoad


_GPU = re.compile(r"gpu(?::(?P<card>.*))?", re.IGNORECASE)
_PID = re.compile(r"[0-9]+")
LARGEST_PID = 2**31 - 1
NAMES_SHOWN = 5
LONGEST_SHOWN = 80


def parse_target(text: str) -> Target:
    """The target. A name of a run comes first, then a file or folder, then a process, then a part of a run's name.

    Raises UsageError in one sentence when it is none of these.
    """
    gpu = _GPU.fullmatch(text)
    run = _named_run(text)
    if run is not None:
        return Target.of_run(run)
    if gpu is not None:
        return on_gpu(gpu["card"])
    if _PID.fullmatch(text):
        return _numbered(text)
    path = at_home(Path(text))
    if text and _exists(path):
        return at_path(path)
    return _by_part_of_a_name(text)


def at_path(path: Path) -> Target:
    """The run, the output of a Trainer or the event files at `path`. Raises UsageError with the reason where there are none."""
    if is_file(path) and RunFolder(path.parent).is_run():
        return Target.of_run(RunFolder(path.parent))
    found = recognise(path)
    if isinstance(found, Target):
        return found
    raise usage_error("not_watchable", str(path), found)


def of_process(pid: int) -> Target:
    """The job that process `pid` belongs to. Raises UsageError where there is none, or several below a shell."""
    table = ProcessTable()
    job = job_of(pid, table) if 0 < pid <= LARGEST_PID else None
    if job is None:
        message = tr("Process {pid} does not exist or is not visible from here.", pid=pid)
        if pid in table.members:
            message = tr("Process {pid} has ended.", pid=pid)
        raise usage_error("no_such_process", str(pid), _with_jobs(message))
    if not table.command(pid):
        message = tr("Process {pid} has no command line: it is part of the kernel, or about to end.", pid=pid)
        raise usage_error("no_such_process", str(pid), _with_jobs(message))
    if job.pid == pid:
        below = [one for one in (job_of(top, table) for top in trainings_if_above(pid, table)) if one is not None]
        if len(below) > 1:
            raise _several(tr("below process {pid}", pid=pid), below)
    return target_of_job(job)


def on_gpu(card: str | None) -> Target:
    """The job that computes on a card ("0", or the beginning of its UUID), or on any. Raises UsageError."""
    # Reading cards loads much that no other word needs.
    from trainwiz.core.telemetry.gpu import read_loads

    loads = read_loads()
    found = loads.gpus
    if not found:
        reason = loads.problem or tr("no GPU found")
        raise usage_error("no_gpu", "gpu", tr("There is no GPU to monitor: {reason}.", reason=reason))
    chosen = [one for one in found if not card or _is_called(one, card)]
    if not chosen:
        known = ", ".join(f"gpu:{one.index} ({one.name or tr('unknown')})" for one in found)
        message = tr("There is no GPU {name} on this machine; available: {names}.", name=repr(card), names=known)
        raise usage_error("no_such_gpu", f"gpu:{card}", message)
    where = tr("GPU {number}", number=chosen[0].index) if len({one.index for one in chosen}) == 1 else tr("the GPUs")
    table = ProcessTable()
    pids = list(dict.fromkeys(pid for one in chosen for pid in one.computing))
    jobs = {job.pid: job for pid in pids if (job := job_of(pid, table)) is not None}
    if len(jobs) > 1:
        raise _several(tr("on {place}", place=where), list(jobs.values()))
    if jobs:
        return target_of_job(next(iter(jobs.values())))
    if pids:
        numbers = ", ".join(map(str, pids[:NAMES_SHOWN]))
        message = tr(
            "Process {pids} computes on {place} but is not visible from here: it belongs to another container or user.",
            pids=numbers,
            place=where,
        )
        raise usage_error("unseen_process", where, message)
    problem = next((one.unseen for one in chosen if one.unseen), None)
    message = tr("Nothing is computing on {place} now.", place=where)
    if problem:
        message = tr("The processes that compute on {place} cannot be read: {reason}.", place=where, reason=problem)
    raise usage_error("idle_gpu", where, _with_jobs(message))


def _is_called(card: GpuLoad, text: str) -> bool:
    if _PID.fullmatch(text):
        return card.index == int(text)
    uuid = (card.uuid or "").lower()
    return len(text) >= 4 and uuid.removeprefix("gpu-").startswith(text.lower().removeprefix("gpu-"))


def _named_run(text: str) -> RunFolder | None:
    """The run with exactly this name below runs/, or at this path, or recorded elsewhere."""
    try:
        if text and Path(text).name == text and RunFolder(DEFAULT_ROOT / text).is_run():
            return RunFolder(DEFAULT_ROOT / text)
        if text and RunFolder(Path(text)).is_run():
            return RunFolder(Path(text))
    except OSError:
        return None
    recorded = [run for run in recorded_runs() if run.path.name == text]
    return recorded[0] if len(recorded) == 1 else None


def _numbered(text: str) -> Target:
    """A process by its number; where there is none, a folder of that name."""
    try:
        return of_process(int(text))
    except UsageError:
        if _exists(Path(text)):
            return at_path(Path(text))
        raise


def _by_part_of_a_name(text: str) -> Target:
    """The one run whose name begins with `text`, or holds it. Raises UsageError with the nearest names."""
    runs = _run_names()
    plain = bool(text) and Path(text).name == text
    matches = [name for name in runs if plain and name.startswith(text)] or [n for n in runs if plain and text in n]
    if len(matches) == 1:
        return Target.of_run(runs[matches[0]])
    if matches:
        shown = ", ".join(matches[:NAMES_SHOWN]) + (", ..." if len(matches) > NAMES_SHOWN else "")
        message = tr(
            "{text} matches {n} runs: {names}. Type more of the name.", text=repr(text), n=len(matches), names=shown
        )
        raise usage_error("ambiguous_run", text, message)
    name = repr(plain_text(text, LONGEST_SHOWN))
    folder = Path() if plain else Path(text).parent
    known, cutoff = ([*runs, *_entries(folder)], 0.5) if plain else (_entries(folder), 0.6)
    near = [str(folder / one) for one in difflib.get_close_matches(Path(text).name, known, n=3, cutoff=cutoff)]
    if plain:
        message = tr("There is no run, file or process {name}.", name=name)
    else:
        message = tr("File or folder not found: {path}.", path=name)
    if near:
        message = tr("{message} Did you mean {guess}?", message=message, guess=tr(" or ").join(near))
    elif plain:
        message = _with_jobs(message)
    raise usage_error("no_such_target" if plain else "no_such_path", text, message)


def _run_names() -> dict[str, RunFolder]:
    """The runs below runs/ and those recorded elsewhere, by name, the newest name first."""
    runs = {run.path.name: run for run in (*recorded_runs(), *run_folders(DEFAULT_ROOT))}
    return dict(sorted(runs.items(), reverse=True))


def _several(where: str, jobs: list[Job]) -> UsageError:
    shown = ", ".join(f"{job.pid} ({job.name})" for job in jobs[:NAMES_SHOWN])
    place = where[:1].upper() + where[1:]
    message = tr(
        "{place} {n} jobs are running: {names}. Specify the number of one: trainwiz monitor {pid}",
        place=place,
        n=len(jobs),
        names=shown,
        pid=jobs[0].pid,
    )
    return usage_error("several_jobs", place, message)


def _with_jobs(message: str) -> str:
    """`message` and what does train here; `trainwiz monitor` where nothing does."""
    running = [found.target for found in list_jobs()]
    if not running:
        return tr("{message} `trainwiz monitor` lists what can be monitored.", message=message)
    return tr("{message} Training on this machine: {names}.", message=message, names=_names(running))


def _names(targets: list[Target]) -> str:
    names = [_name(target) for target in targets[:NAMES_SHOWN]]
    return ", ".join(names) + (", ..." if len(targets) > NAMES_SHOWN else "")


def _name(target: Target) -> str:
    """What can be given to find it again: a process by its number, a run below runs/ by its name, else the path."""
    if target.pid is not None:
        return f"{target.pid} ({target.name.partition(' · ')[0]})"
    here = target.path.resolve().parent == DEFAULT_ROOT.resolve()
    return plain_text(target.name if here else target.path)


def _exists(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except PermissionError:
        return True
    except OSError:
        return False


def _entries(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in at_home(folder).iterdir()]
    except OSError:
        return []
