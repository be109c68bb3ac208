"""A training that trainwiz did not start, as a source: its processes, its files as far as it is proved that they are
its own, and the machine under them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwiz.core.language import mark, tr
from trainwiz.core.lines import Seldom, TextTail
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.lost import CREATE_TIME_TOLERANCE_S
from trainwiz.core.telemetry.advice import live_advice, worst_first
from trainwiz.core.telemetry.diagnosed import LogDiagnosis
from trainwiz.core.telemetry.job import (
    CLOCK_SLACK_S,
    GRAPHICS,
    Job,
    began,
    is_event_file,
    is_record,
    job_of,
    loads_framework,
    members_of,
    named_writer,
    output_paths,
    records,
    training_tops,
)
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.machine import MachineHistory, MachineSampler
from trainwiz.core.telemetry.processes import (
    OpenFile,
    ProcessTable,
    environment_of,
    open_files,
    working_folder,
    written_files,
    written_through,
)
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_files_source
from trainwiz.core.telemetry.trainer_folder import names_arguments

# Which record a process writes, as far as that is proved.

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
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why there are no metrics, as its open files are not known, or no log."""
    uses_gpu: bool | None = None
    """Whether it has a graphics card open; None where that is not known."""


def clues_of(job: Job, table: ProcessTable) -> Clues:
    """Look at all processes of the job. What ends meanwhile, or belongs to another user, is left out."""
    pids = members_of(job.pid, table)
    opened = {pid: files for pid in pids if (files := open_files(pid)) is not None}
    cwds = (folder for folder in map(working_folder, (job.pid, *reversed(pids))) if folder is not None)
    ends = [file for files in opened.values() for file in files if file.descriptor in (1, 2)]
    log = _log_of(ends)
    reasons = {}
    if pids and not opened:
        reasons["metrics"] = tr("Process {pid} belongs to another user: its files are not visible.", pid=job.pid)
    elif log is None and any(end.kind == "terminal" for end in ends):
        reasons["log"] = tr("There is no log: its output goes to a terminal, which no other program can read.")
    written = (path for pid, files in opened.items() for path in written_files(pid, files))
    return Clues(
        cwd=next(cwds, None),
        pids=frozenset(pids),
        event_files=tuple(dict.fromkeys(path for path in written if is_event_file(path.name))),
        outputs=tuple(dict.fromkeys(output for pid in pids for output in outputs_of(pid, table))),
        log=log,
        log_ends=frozenset(end.name for end in ends if end.kind in ENDS),
        reasons=reasons,
        uses_gpu=any(file.name.startswith(GRAPHICS) for files in opened.values() for file in files) if opened else None,
    )


def outputs_of(pid: int, table: ProcessTable) -> list[Path]:
    """The folders that its arguments and its environment name for what it writes."""
    cwd, variables = working_folder(pid), environment_of(pid)
    if cwd is None:
        return []
    named = [cwd / variables[name] for name in OUTPUT_VARIABLES if variables.get(name)]
    return [Path(os.path.normpath(path)) for path in (*output_paths(table.command(pid), cwd), *named)]


def _log_of(ends: Iterable[OpenFile]) -> Path | None:
    """The file behind standard output, else standard error, of the first process that has one; through a pipe too."""
    ends = sorted(ends, key=lambda end: end.descriptor)
    files = (end.path for end in ends if end.path is not None)
    through = (path for end in ends if end.kind == "pipe" for path in written_through(end.name))
    return next(files, None) or next(through, None)


def find_metrics(job: Job, clues: Clues, table: ProcessTable) -> tuple[Target, Mapping[str, Sequence[Path]]] | None:
    """The best place that holds metrics of which it is proved that this very job writes them; and of an event folder its
    own files of each run.

    Proved is an event file that is open for writing or named after one of its processes, the output folder that its
    arguments name, and the log that it writes; the last two where no other training claims them.
    """
    from trainwiz.core.telemetry.discovery import recognise

    since_s = job.started_s - CLOCK_SLACK_S
    beside_log = clues.log.parent if clues.log is not None else None
    places = dict.fromkeys(place for place in (*clues.outputs, beside_log, clues.cwd) if place is not None)
    found = (path for folder in places for path in records(folder, since_s, is_event_file))
    # tensorboard's own writer opens its file for each flush only.
    own = list(dict.fromkeys((*clues.event_files, *(path for path in found if named_writer(path) in clues.pids))))
    if own:
        folders = list(dict.fromkeys(file.parent for file in own))
        root = Path(os.path.commonpath(folders))
        runs = {
            folder.relative_to(root).as_posix(): [file for file in own if file.parent == folder] for folder in folders
        }
        return Target("trainer" if any(map(names_arguments, own)) else "tensorboard", root, root.name), runs
    for path in clues.outputs:
        names = [file.name for file in records(path, since_s, is_record)]
        # Event files that are not its own are of another process.
        is_others = any(map(is_event_file, names)) or _is_claimed(path, clues, table)
        target = recognise(path) if names and not is_others else None
        if isinstance(target, Target):
            return target, {}
    target = recognise(clues.log) if clues.log is not None else None
    return (target, {}) if isinstance(target, Target) and not _is_claimed(None, clues, table) else None


def _is_claimed(output: Path | None, clues: Clues, table: ProcessTable) -> bool:
    """By another training whose arguments name the same output folder, one above it, or one in it; where none is given,
    whose own output goes to the same log, or through the same pipe."""

    def claims(pid: int) -> bool:
        if output is None:
            return any(file.descriptor in (1, 2) and file.name in clues.log_ends for file in open_files(pid) or ())
        return any(named.is_relative_to(output) or output.is_relative_to(named) for named in outputs_of(pid, table))

    others = (pid for pid in table.members if pid not in clues.pids and pid != os.getpid())
    return any(loads_framework(pid, table) and claims(pid) for pid in others)


# The sources: a process, and a folder that somebody writes.

LOOK_EVERY_S = 5.0
"""How often a job, or its files, are looked for: an event file appears with the first logged step."""
SAMPLE_EVERY_S = 1.0
"""The machine is sampled at most this often."""
FIRST_LOAD_S = 0.3
"""`read_all` waits this long between two samples: CPU load is what happened in between."""
CPU_ENGINE = {"device": "cpu"}
"""What a snapshot's engine says of a job that has no graphics card open: the cards of the machine are not its own."""
ENDED = mark("its processes have ended; processes of others are not shown")
NOT_HERE = mark(
    "No process on this machine is known to write to it, so its GPU, RAM and processes are unknown; those of this "
    "machine are not shown."
)


class JobSource(Source):
    """What a process and a folder that somebody writes to have in common: files, a job, its log and its machine."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        self.target = target
        self._clock = clock
        self._diagnosis = LogDiagnosis()
        self._look = Seldom(LOOK_EVERY_S)
        self._forget_job()

    def _forget_job(self) -> None:
        self._job: Job | None = None
        self._clues = Clues(cwd=None)
        self._machine: MachineSampler | None = None
        self._next_sample_s = 0.0
        self._history = MachineHistory()
        self._log = LogLines()

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """As any source; where there is a job it samples twice, so that the only look knows the CPU load."""
        wanted = tuple(curves)
        snapshot = super().read_all(wanted)
        if self._machine is None:
            return snapshot
        time.sleep(FIRST_LOAD_S)
        self._next_sample_s = 0.0
        return super().read_all(wanted)

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()

    def _follow(self, job: Job, table: ProcessTable) -> None:
        self._clues = clues_of(job, table)
        log = self._clues.log
        if log is not None and log != self._log_path:
            self._log = LogLines(TextTail(log))
        if self._machine is None:
            place = self._clues.cwd if self.target.kind == "process" else self.target.path
            self._machine = MachineSampler(place or self.target.path, job.pid, clock=self._clock)

    @property
    def _log_path(self) -> Path | None:
        return None if self._log.tail is None else self._log.tail.path

    def _with_log(self, snapshot: Snapshot) -> Snapshot:
        if self._log_path is None or snapshot.log:
            return snapshot
        return replace(snapshot, log=self._log.read(), log_path=str(self._log_path))

    def _while_it_runs(self, snapshot: Snapshot) -> Snapshot:
        now = time.monotonic()
        if self._machine is not None and now >= self._next_sample_s:
            self._next_sample_s = now + SAMPLE_EVERY_S
            self._history.add_rows([self._machine.sample()])
        snapshot = self._diagnosis.add_to(snapshot, runs=True)
        return with_machine(snapshot, self._history, uses_gpu=self._clues.uses_gpu)


def with_machine(snapshot: Snapshot, machine: MachineHistory, *, uses_gpu: bool | None) -> Snapshot:
    """`snapshot` of files whose writer is alive, with the readings of `machine`, their reasons and their advice.

    The files may rest, as in a long step, and the job does not. One that has reached its last step stays finished: its
    processes save, or wait in a notebook. `uses_gpu`: whether the job has a card open; None where that is not known.
    """
    if snapshot.status != "finished":
        snapshot = replace(snapshot, status="running", ending=None, ended_s=None, eta_s=snapshot.left_s)
    readings, reasons = machine.readings(), machine.unavailable()
    holds_memory = any(gpu.job_memory_bytes for gpu in readings["gpus"])
    if uses_gpu and readings["gpus"] and not holds_memory:
        reasons["job_gpu_memory"] = tr(
            "The driver lists no process of this job on any GPU (in a container it uses the process IDs of the "
            "host), so the memory used by the job is unknown."
        )
    engine = snapshot.engine if uses_gpu is not False or holds_memory else {**snapshot.engine, **CPU_ENGINE}
    snapshot = replace(snapshot, **readings, unavailable={**snapshot.unavailable, **reasons}, engine=engine)
    return replace(snapshot, advice=worst_first(snapshot.advice, live_advice(snapshot)))


def with_reasons(snapshot: Snapshot, reasons: Mapping[str, str]) -> Snapshot:
    """`snapshot` with sentences that say why something is not shown: beside the value, and as notes to read."""
    notes = [Advice(f"no_{what}", "note", reason) for what, reason in reasons.items()]
    unavailable = {**snapshot.unavailable, **reasons}
    return replace(snapshot, unavailable=unavailable, advice=worst_first(snapshot.advice, notes))


class ProcessSource(JobSource):
    """A process: all of its job, and its metrics wherever it is proved that it writes them."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(target, clock=clock)
        self._files: Source | None = None
        self._found: Target | None = None
        """What `_files` reads."""
        self._event_files: Mapping[str, Sequence[Path]] = {}
        self._ended_s: float | None = None

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        # The processes are asked first: a job that has ended by then has written all its lines.
        alive = self._is_alive()
        if self._files is not None:
            snapshot = self._files.poll(curves)
        else:
            snapshot = Snapshot("process", str(self.target.path), self.target.name, "running", self._clock())
        snapshot = replace(
            self._with_log(snapshot),
            source="process",
            path=str(self._clues.cwd or self.target.path),
            name=self.target.name,
            command=self._job.command if self._job else None,
            started_s=self._job.started_s if self._job else self.target.started_s,
        )
        if alive:
            snapshot = self._while_it_runs(snapshot)
            return with_reasons(snapshot, self._reasons(snapshot))
        has_finished = snapshot.status == "finished"
        snapshot = replace(
            snapshot,
            status="finished" if has_finished else "quiet",
            eta_s=None,
            ended_s=self._ended_s,
            ending=snapshot.ending if has_finished else self._ending(),
            unavailable={**snapshot.unavailable, "machine": tr(ENDED)},
        )
        return self._diagnosis.add_to(snapshot, runs=False)

    def _is_alive(self) -> bool:
        """Bring processes and the search for files up to date; whether the job is alive."""
        if self._ended_s is not None:
            return False
        if self._job is None:
            self._job = self._find_job()
        alive = self._job is not None and self._job.is_alive()
        if not alive:
            self._ended_s, self._look.next_s = self._clock(), 0.0
        self._look.do(self._search)
        return alive

    def _find_job(self) -> Job | None:
        job = job_of(self.target.pid, ProcessTable()) if self.target.pid is not None else None
        started_s = self.target.started_s
        reused = job is not None and started_s is not None and job.started_s > started_s + CREATE_TIME_TOLERANCE_S
        return None if reused else job

    def _search(self) -> None:
        """Look for the job's files: those that are no longer proved to be its own are let go."""
        job, table = self._job, ProcessTable()
        if job is None:
            return
        if table.is_alive(job.pid):
            self._follow(job, table)
        found, self._event_files = find_metrics(job, self._clues, table) or (None, {})
        if found is None or found != self._found:
            self._found = found
            # Beside its event files a log adds nothing, and may have an earlier job's lines; beside states it tells the newest.
            find = (lambda: self._event_files) if self._event_files else None
            log = None if self._event_files else self._clues.log
            self._files = None
            if found is not None:
                self._files = open_files_source(found, clock=self._clock, log=log, find=find)

    def _reasons(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Why there are no metrics, or no log."""
        clues, reasons = self._clues, dict(self._clues.reasons)
        if not snapshot.metrics:
            looked = ", ".join([str(path) for path in (*clues.outputs, clues.log, clues.cwd) if path is not None][:3])
            none = tr("It has not written any known metrics (looked in {places}).", places=looked)
            reasons.setdefault("metrics", none)
        return reasons

    def _ending(self) -> Ending:
        if self._job is None:
            return Ending(tr("Process {pid} has ended.", pid=self.target.pid))
        when = time.strftime("%H:%M:%S", time.localtime(self._ended_s))
        said = tr(
            "Its processes had ended by {time}; how they ended is unknown because another program started them.",
            time=when,
        )
        return Ending(said, None if self._log_path is None else tr("See why in {path}.", path=self._log_path))


class FolderSource(JobSource):
    """A folder: its files, and the job of this machine that writes to it while there is one."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(target, clock=clock)
        self._files: Source = open_files_source(target, clock=clock)
        self._writer_gone = False
        """The process that wrote was seen, or named by a file, and has ended."""

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        if self._job is not None and not self._job.is_alive():
            self._writer_gone = True
            self.close()
            self._forget_job()
        snapshot = self._files.poll(curves)
        if not snapshot.behind:
            self._look.do(lambda: self._look_for_job([*map(Path, snapshot.read_from)]))
        if self._job is None:
            if self._writer_gone and snapshot.status == "running" and not snapshot.behind:
                # Files that were written just now look alive; not where their writer is known to have ended.
                said = tr("The process that wrote it has ended; how it ended is unknown.")
                snapshot = replace(snapshot, status="quiet", eta_s=None, ending=Ending(said))
            return with_reasons(self._diagnosis.add_to(snapshot, runs=False), {"machine": tr(NOT_HERE)})
        started_s = snapshot.started_s or self._job.started_s
        snapshot = replace(self._with_log(snapshot), command=self._job.command, started_s=started_s)
        return self._while_it_runs(snapshot)

    def _look_for_job(self, files: list[Path]) -> None:
        """Look for the job, or at what a known one has open now."""
        table = ProcessTable()
        self._job = self._job or job_writing_to(self.target.path, files, table)
        if self._job is not None:
            self._writer_gone = False
            self._follow(self._job, table)
        else:
            self._writer_gone = self._writer_gone or any(named_writer(file) is not None for file in files)


def job_writing_to(path: Path, files: Iterable[Path], table: ProcessTable) -> Job | None:
    """The job of this machine that writes to `path`, as far as this user sees it.

    It began one of the event files in `files`, has an event file or its log there, or names `path` as its
    output folder, and no other job does.
    """
    writer = next((pid for pid in map(began, files) if pid is not None and table.is_alive(pid)), None)
    if writer is not None:
        return job_of(writer, table)
    place, claims = path.resolve(), list[Job]()
    for job in (job for top in training_tops(table) if (job := job_of(top, table)) is not None):
        clues = clues_of(job, table)
        written = (*clues.event_files, *([clues.log] if clues.log else ()))
        if any(file.is_relative_to(place) for file in written):
            return job
        if any(place.is_relative_to(os.path.realpath(output)) for output in clues.outputs):
            claims.append(job)
    return claims[0] if len(claims) == 1 else None
