"""Which record a process writes, as far as that is proved."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.telemetry.job import (
    CLOCK_SLACK_S,
    GRAPHICS,
    Job,
    is_event_file,
    is_record,
    loads_framework,
    members_of,
    named_writer,
    output_paths,
    records,
    written_files,
)
from trainwiz.core.telemetry.processes import (
    OpenFile,
    ProcessTable,
    environment_of,
    open_files,
    working_folder,
    written_through,
)
from trainwiz.core.telemetry.target import Target

OUTPUT_VARIABLES = ("TENSORBOARD_LOGGING_DIR", "TENSORBOARD_LOGDIR")
ENDS = ("file", "pipe")


@dataclass(frozen=True, slots=True)
class Clues:
    """What one look at the processes of a job tells."""

    cwd: Path | None
    pids: frozenset[int] = frozenset()
    """All processes of the job at that time: files are named after them."""
    event_files: tuple[Path, ...] = ()
    """Open for writing."""
    outputs: tuple[Path, ...] = ()
    """Named on the command line or in the environment."""
    log: Path | None = None
    """The file that its standard output goes to."""
    log_ends: frozenset[str] = frozenset()
    """What its standard output goes to, as /proc names it: the log itself, or a pipe."""
    log_reason: str | None = None
    """Why there is no `log`."""
    unreadable: str | None = None
    """Why its open files are not known."""
    uses_gpu: bool | None = None
    """Whether it has a graphics card open; None where that is not known."""

    @property
    def folders(self) -> list[Path]:
        """Where else event files of its own may lie."""
        places = (*self.outputs, self.log.parent if self.log else None, self.cwd)
        return list(dict.fromkeys(place for place in places if place is not None))


@dataclass(frozen=True, slots=True)
class FoundMetrics:
    target: Target
    is_its_own: bool
    """By an event file of its own; else a place that it names, until somebody else claims it."""
    event_files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """Its own files of each run, where they lie in no output of a Trainer."""


def clues_of(job: Job, table: ProcessTable) -> Clues:
    """Look at all processes of the job. What ends meanwhile, or belongs to another user, is left out."""
    pids = members_of(job.pid, table)
    opened = {pid: open_files(pid) for pid in pids}
    seen = {pid: files for pid, files in opened.items() if files is not None}
    cwd = next((folder for folder in map(working_folder, reversed(pids)) if folder is not None), None)
    cwd = working_folder(job.pid) or cwd
    outputs = [output for pid in pids for output in outputs_of(pid, table)]
    log, log_reason = _log_of(seen)
    return Clues(
        cwd=cwd,
        pids=frozenset(pids),
        event_files=tuple(
            dict.fromkeys(
                path for pid, files in seen.items() for path in written_files(pid, files) if is_event_file(path.name)
            )
        ),
        outputs=tuple(dict.fromkeys(outputs)),
        log=log,
        log_ends=frozenset(
            file.name for files in seen.values() for file in files if file.descriptor in (1, 2) and file.kind in ENDS
        ),
        log_reason=log_reason,
        unreadable=None
        if seen or not pids
        else tr("Process {pid} belongs to another user: its files are not visible.", pid=job.pid),
        uses_gpu=any(file.name.startswith(GRAPHICS) for files in seen.values() for file in files) if seen else None,
    )


def outputs_of(pid: int, table: ProcessTable) -> list[Path]:
    """The folders that its arguments and its environment name for what it writes."""
    cwd, variables = working_folder(pid), environment_of(pid)
    if cwd is None:
        return []
    named = [cwd / variables[name] for name in OUTPUT_VARIABLES if variables.get(name)]
    return [Path(os.path.normpath(path)) for path in (*output_paths(table.command(pid), cwd), *named)]


def _log_of(seen: dict[int, list[OpenFile]]) -> tuple[Path | None, str | None]:
    """The file behind standard output, else standard error, of the first process that has one; through a pipe too."""
    ends = [file for end in (1, 2) for files in seen.values() for file in files if file.descriptor == end]
    for end in ends:
        if end.path is not None:
            return end.path, None
    for pipe in dict.fromkeys(end.name for end in ends if end.kind == "pipe"):
        if paths := written_through(pipe):
            return paths[0], None
    is_terminal = any(end.kind == "terminal" for end in ends)
    said = tr("There is no log: its output goes to a terminal, which no other program can read.")
    return None, said if is_terminal else None


def find_metrics(job: Job, clues: Clues, table: ProcessTable) -> FoundMetrics | None:
    """The best place that holds metrics of which it is proved that this very job writes them.

    Proved is an event file that is open for writing or named after one of its processes, the output folder that its
    arguments name, and the log that it writes; the last two where no other training claims them.
    """
    from trainwiz.core.telemetry.discovery import recognise

    since_s = job.started_s - CLOCK_SLACK_S
    files = own_event_files(clues, since_s)
    if files:
        return _from_event_files(files, clues, since_s)
    for path in clues.outputs:
        target = recognise(path) if records(path, since_s, is_record) else None
        is_others = _others_events(path, files, since_s) or _claimed_by(path, clues, table) is not None
        if isinstance(target, Target) and not is_others:
            return FoundMetrics(target, is_its_own=False)
    target = recognise(clues.log) if clues.log is not None else None
    if isinstance(target, Target):
        return FoundMetrics(target, is_its_own=False) if _claimed_by(None, clues, table) is None else None
    return None


def _claimed_by(output: Path | None, clues: Clues, table: ProcessTable) -> int | None:
    """Another training whose arguments name the same output folder, one above it, or one in it; where none is given,
    whose own output goes to the same log, or through the same pipe."""

    def claims(pid: int) -> bool:
        if output is None:
            return any(file.descriptor in (1, 2) and file.name in clues.log_ends for file in open_files(pid) or ())
        return any(named.is_relative_to(output) or output.is_relative_to(named) for named in outputs_of(pid, table))

    others = (pid for pid in table.members if pid not in clues.pids and pid != os.getpid())
    return next((pid for pid in others if loads_framework(pid, table) and claims(pid)), None)


def _others_events(place: Path, own: Iterable[Path], since_s: float) -> bool:
    """Whether event files that are not `own` were written below `place` since the job began."""
    return not set(records(place, since_s, is_event_file)) <= set(own)


def own_event_files(clues: Clues, since_s: float) -> list[Path]:
    """The event files that these processes have open, or that are named after one of them.

    tensorboard's own writer opens its file for each flush only.
    """
    found = (path for folder in clues.folders for path in records(folder, since_s, is_event_file))
    return list(dict.fromkeys((*clues.event_files, *(path for path in found if named_writer(path) in clues.pids))))


def _from_event_files(files: list[Path], clues: Clues, since_s: float) -> FoundMetrics:
    """As the output of a Trainer where they lie in one, to which nobody else writes; else these files alone."""
    from trainwiz.core.telemetry.discovery import recognise

    folders = list(dict.fromkeys(file.parent for file in files))
    homes = [output for output in clues.outputs if all(folder.is_relative_to(output) for folder in folders)]
    if len(folders) == 1 and folders[0].parent.name == "runs":
        # A Trainer writes to OUTPUT/runs/<time>_<host>; a plain SummaryWriter to ./runs/<time>_<host>.
        homes.append(folders[0].parent.parent)
    for home in homes:
        target = None if _others_events(home, files, since_s) else recognise(home)
        if isinstance(target, Target) and target.kind == "trainer" and target.path == home:
            return FoundMetrics(target, is_its_own=True)
    root = Path(os.path.commonpath(folders))
    runs = {
        folder.relative_to(root).as_posix(): sorted(file for file in files if file.parent == folder)
        for folder in folders
    }
    return FoundMetrics(Target("tensorboard", root, root.name), is_its_own=True, event_files=runs)
