"""A folder that others write to, as a source."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.foreign_log import JobLog, LogDiagnosis, while_it_runs, with_machine, with_reasons
from trainwiz.core.telemetry.job import (
    EVENT_WORD,
    Job,
    began,
    job_of,
    loads_framework,
    members_of,
    named_writer,
    records,
    training_tops,
    written_files,
)
from trainwiz.core.telemetry.job_metrics import Clues, clues_of, outputs_of
from trainwiz.core.telemetry.machine import LiveMachine, MachineHistory
from trainwiz.core.telemetry.peaks import CheckpointSize
from trainwiz.core.telemetry.processes import ProcessTable, open_files, working_folder
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.target import Source
from trainwiz.core.telemetry.words import NEVER, is_python, program_of, step_words

LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
FIRST_LOAD_S = 0.3
NOT_HERE = mark(
    "No process of this machine is known to write to it, so nothing is known of its GPU, RAM and processes; "
    "those of this machine are not shown."
)


def job_writing_to(path: Path, files: Iterable[Path], table: ProcessTable) -> Job | None:
    """The job of this machine that writes to `path`, as far as this user sees it.

    It has a file of it open for writing, began one of the event files in `files`, or names `path` as its
    output folder, and no other job does.
    """
    files = tuple(files)
    writer = next((pid for pid in map(began, files) if pid is not None and table.is_alive(pid)), None)
    place = path.resolve()
    if writer is None:
        writer = next((one for pid in table.members if (one := _writer_below(pid, place, table)) is not None), None)
    if writer is None:
        claims = [top for top in training_tops(table) if _is_output_of(top, place, table)]
        writer = claims[0] if len(claims) == 1 else None
    return None if writer is None else job_of(writer, table)


def _writer_below(pid: int, place: Path, table: ProcessTable) -> int | None:
    """`pid` if it is a Python that has a file at or below `place` open for writing; for `tee` the Python before it."""
    command = table.command(pid)
    if pid == os.getpid() or not command or program_of(command).split(".")[0] in NEVER:
        return None
    files = open_files(pid) or ()
    if not any(file.is_relative_to(place) for file in written_files(pid, list(files))):
        return None
    if is_python(command):
        return pid
    pipe = next((file.name for file in files if file.descriptor == 0 and file.kind == "pipe"), None)
    return next((one for one in table.members if pipe and is_python(table.command(one)) and _feeds(one, pipe)), None)


def _feeds(pid: int, pipe: str) -> bool:
    return any(file.name == pipe and file.descriptor in (1, 2) for file in open_files(pid) or ())


def _is_output_of(top: int, place: Path, table: ProcessTable) -> bool:
    """Whether `place` is the output folder that the job's command or environment names, or lies in it."""
    return any(_holds(named, place) for pid in members_of(top, table) for named in outputs_of(pid, table))


def _works_above(path: Path, table: ProcessTable) -> int | None:
    """A program with a framework whose working folder holds `path`, and that is not known to write elsewhere."""
    place = path.resolve()
    for top in table.members:
        if top == os.getpid() or not loads_framework(top, table):
            continue
        cwd = working_folder(top)
        if cwd is None or not place.is_relative_to(cwd) or outputs_of(top, table):
            continue
        if not any(began(file) == top for file in records(cwd, 0.0, lambda name: EVENT_WORD in name)):
            return top
    return None


def _holds(folder: Path, place: Path) -> bool:
    try:
        return place.is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


class FolderSource(Source):
    """The snapshots of `files`, with processes and machine added while a job here writes to `path`."""

    def __init__(self, files: Source, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._files = files
        self._path = path
        self._clock = clock
        self._job: Job | None = None
        self._clues = Clues(cwd=None)
        self._machine: LiveMachine | None = None
        self._log = JobLog()
        self._perhaps: int | None = None
        """A training that may write here, of which nothing proves it."""
        self._history = MachineHistory()
        self._checkpoint_size = CheckpointSize(path, clock=clock)
        self._diagnosis = LogDiagnosis()
        self._next_look_s = 0.0
        self._writer_gone = False
        """The process that wrote was seen, or named by a file, and has ended."""
        self._last_step: int | None = None

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look at the files, and at the job where there is one."""
        job = self._living_job()
        snapshot = self._files.poll(curves)
        if not snapshot.behind and time.monotonic() >= self._next_look_s:
            job = self._look(tuple(map(Path, snapshot.read_from)))
        if job is None or self._machine is None:
            reason = tr(NOT_HERE)
            if self._perhaps is not None:
                reason = tr(
                    "{sentence} Process {pid} works in a folder above it and may be the one: `trainwiz monitor {pid}`",
                    sentence=reason,
                    pid=self._perhaps,
                )
            snapshot = self._diagnosis.add_to(self._once_its_writer_is_gone(snapshot), runs=False)
            return with_reasons(snapshot, {"machine": reason})
        row = self._machine.sample()
        if row is not None:
            self._history.add_rows([row])
        snapshot = dataclasses.replace(
            while_it_runs(self._log.laid_over(snapshot)),
            command=job.command,
            started_s=snapshot.started_s or job.started_s,
        )
        return with_machine(
            self._diagnosis.add_to(snapshot, runs=True),
            self._history,
            uses_gpu=self._clues.uses_gpu,
            checkpoint_bytes=self._checkpoint_size.next_bytes(),
        )

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """As any source; where a job writes here it samples twice, so that the only look knows the CPU load."""
        wanted = tuple(curves)
        snapshot = super().read_all(wanted)
        if self._machine is None:
            return snapshot
        time.sleep(FIRST_LOAD_S)
        self._machine.hurry()
        return super().read_all(wanted)

    def close(self) -> None:
        self._files.close()
        self._drop()

    def _living_job(self) -> Job | None:
        if self._job is not None and not self._job.is_alive():
            self._writer_gone = True
            self._drop()
        return self._job

    def _once_its_writer_is_gone(self, snapshot: Snapshot) -> Snapshot:
        """Files that were written just now look alive; not where their writer is known to have ended.

        When they grow all the same, somebody else writes.
        """
        if not self._writer_gone or snapshot.status != "running" or snapshot.behind:
            return snapshot
        if self._last_step is not None and snapshot.step != self._last_step:
            self._writer_gone, self._last_step = False, None
            return snapshot
        self._last_step = snapshot.step
        said = tr("The process that wrote it has ended; how it ended is not known.")
        if snapshot.step is not None:
            place = step_words(snapshot.step, None)
            said = tr("The process that wrote it has ended at {place}; how it ended is not known.", place=place)
        ending = Ending(said)
        return dataclasses.replace(snapshot, status="quiet", eta_s=None, ending=ending)

    def _look(self, files: Iterable[Path]) -> Job | None:
        """Look for the job, or at what a known one has open now, as often as keeps it cheap."""
        started_s = time.thread_time()
        table = ProcessTable()
        if self._job is None:
            self._job = job_writing_to(self._path, files, table)
            if self._job is not None:
                self._writer_gone, self._last_step = False, None
                self._machine = LiveMachine((root.pid for root in self._job.roots), self._path, clock=self._clock)
            else:
                self._perhaps = _works_above(self._path, table)
                self._writer_gone = self._writer_gone or any(named_writer(file) is not None for file in files)
        if self._job is not None:
            self._clues = clues_of(self._job, table)
            self._log.follow(self._clues.log)
        cost_s = time.thread_time() - started_s
        self._next_look_s = time.monotonic() + max(LOOK_EVERY_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)
        return self._job

    def _drop(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._job, self._machine, self._history, self._log = None, None, MachineHistory(), JobLog()
