"""FolderSource: files of a training, and where a process of this machine writes them, that job too."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainwiz.core.telemetry.job import Job, job_of, training_tops
from trainwiz.core.telemetry.job_arguments import output_paths
from trainwiz.core.telemetry.job_metrics import Clues, clues_of
from trainwiz.core.telemetry.live_machine import LiveMachine
from trainwiz.core.telemetry.machine_history import MachineHistory
from trainwiz.core.telemetry.on_machine import with_machine, with_reasons
from trainwiz.core.telemetry.open_files import is_written, open_files
from trainwiz.core.telemetry.process_facts import working_folder
from trainwiz.core.telemetry.process_table import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.source import Source
from trainwiz.core.telemetry.training_words import NEVER, is_python, program_of

LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
NOT_HERE = (
    "No process of this machine writes to it, so nothing is known of its GPU, RAM and processes; "
    "those of this machine are not shown."
)


def job_writing_to(path: Path, table: ProcessTable) -> Job | None:
    """The job of this machine and user that has a file at or below `path` open for writing, or names it as its output."""
    place = path.resolve()
    own = os.getpid()
    for pid in table.members:
        command = table.command(pid)
        if pid == own or not is_python(command) or program_of(command).split(".")[0] in NEVER:
            continue
        for file in open_files(pid) or ():
            if file.path is not None and file.path.is_relative_to(place) and is_written(pid, file.descriptor):
                return job_of(pid, table)
    for top in training_tops(table):
        for pid in table.tree(top):
            cwd = working_folder(pid)
            if cwd is not None and any(_holds(named, place) for named in output_paths(table.command(pid), cwd)):
                return job_of(top, table)
    return None


def _holds(named: Path, place: Path) -> bool:
    """Whether `place` is the output folder that a command names, or lies in it."""
    try:
        return place.is_relative_to(named.resolve())
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
        self._history = MachineHistory()
        self._next_look_s = 0.0

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look at the files, and at the job where there is one."""
        job = self._living_job()
        snapshot = self._files.poll(curves)
        if job is None or self._machine is None:
            return with_reasons(snapshot, {"machine": NOT_HERE})
        row = self._machine.sample()
        if row is not None:
            self._history.add_rows([row])
        if snapshot.status == "quiet":
            # Its files rest, as in a long step or an evaluation; the process that writes them does not.
            snapshot = dataclasses.replace(snapshot, status="running", ending=None)
        snapshot = dataclasses.replace(snapshot, command=job.command, started_s=snapshot.started_s or job.started_s)
        return with_machine(snapshot, self._history, uses_gpu=self._clues.uses_gpu)

    def close(self) -> None:
        self._files.close()
        self._drop()

    def _living_job(self) -> Job | None:
        if self._job is not None and not self._job.is_alive():
            self._drop()
        if time.monotonic() >= self._next_look_s:
            self._look()
        return self._job

    def _look(self) -> None:
        started_s = time.thread_time()
        table = ProcessTable()
        job = self._job or job_writing_to(self._path, table)
        if job is not None:
            self._clues = clues_of(job, table)
            if self._job is None:
                self._job = job
                self._machine = LiveMachine((root.pid for root in job.roots), self._path, clock=self._clock)
        cost_s = time.thread_time() - started_s
        self._next_look_s = time.monotonic() + max(LOOK_EVERY_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)

    def _drop(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._job, self._machine, self._history = None, None, MachineHistory()
