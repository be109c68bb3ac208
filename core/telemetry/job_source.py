"""A training that trainwiz did not start, as a source: its files, its processes, and the machine under them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from trainwiz.core.language import mark, tr
from trainwiz.core.lines import Seldom, TextTail
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.lost import CREATE_TIME_TOLERANCE_S
from trainwiz.core.telemetry.advice import live_advice, worst_first
from trainwiz.core.telemetry.diagnosed import LogDiagnosis
from trainwiz.core.telemetry.job import Job, began, job_of, named_writer, training_tops
from trainwiz.core.telemetry.job_metrics import Clues, FoundMetrics, clues_of, find_metrics
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.machine import CheckpointSize, MachineHistory, MachineSampler
from trainwiz.core.telemetry.processes import ProcessSampler, ProcessTable
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_files_source

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
        self._files: Source | None = None
        self._diagnosis = LogDiagnosis()
        self._look = Seldom(LOOK_EVERY_S)
        self._forget_job()

    def _forget_job(self) -> None:
        self._job: Job | None = None
        self._clues = Clues(cwd=None)
        self._machine: MachineSampler | None = None
        self._processes: ProcessSampler | None = None
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
            self._processes = ProcessSampler(job.pid)
            self._machine = MachineSampler(place or self.target.path, clock=self._clock)

    @property
    def _log_path(self) -> Path | None:
        return None if self._log.tail is None else self._log.tail.path

    def _with_log(self, snapshot: Snapshot) -> Snapshot:
        if self._log_path is None or snapshot.log:
            return snapshot
        return replace(snapshot, log=self._log.read(), log_path=str(self._log_path))

    def _with_machine(self, snapshot: Snapshot, checkpoint_bytes: int | None = None) -> Snapshot:
        now = time.monotonic()
        if self._machine is not None and self._processes is not None and now >= self._next_sample_s:
            self._next_sample_s = now + SAMPLE_EVERY_S
            self._history.add_rows([self._machine.sample(self._processes.sample())])
        snapshot = self._diagnosis.add_to(while_it_runs(snapshot), runs=True)
        return with_machine(snapshot, self._history, uses_gpu=self._clues.uses_gpu, checkpoint_bytes=checkpoint_bytes)


def while_it_runs(snapshot: Snapshot) -> Snapshot:
    """`snapshot` of files whose writer is alive: they may rest, as in a long step, and the job does not.

    One that has reached its last step stays finished: its processes save, or wait in a notebook.
    """
    if snapshot.status == "finished":
        return snapshot
    return replace(snapshot, status="running", ending=None, ended_s=None, eta_s=snapshot.left_s)


def with_machine(
    snapshot: Snapshot, machine: MachineHistory, *, uses_gpu: bool | None, checkpoint_bytes: int | None = None
) -> Snapshot:
    """`snapshot` with the readings of `machine`, their reasons and their advice added to its own.

    `uses_gpu`: whether the job has a card open; None where that is not known. `checkpoint_bytes`: what its
    next checkpoint takes.
    """
    readings, reasons = machine.readings(), machine.unavailable()
    holds_memory = any(gpu.job_memory_bytes for gpu in readings["gpus"])
    if uses_gpu and readings["gpus"] and not holds_memory:
        reasons["job_gpu_memory"] = tr(
            "The driver lists no process of this job on any GPU (in a container it uses the process IDs of the "
            "host), so the memory used by the job is unknown."
        )
    snapshot = replace(
        snapshot,
        **readings,
        checkpoint_bytes=checkpoint_bytes,
        unavailable={**snapshot.unavailable, **reasons},
        engine=snapshot.engine if uses_gpu is not False or holds_memory else {**snapshot.engine, **CPU_ENGINE},
    )
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
        self._found: FoundMetrics | None = None
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
            snapshot = self._with_machine(snapshot)
            return with_reasons(snapshot, self._reasons(snapshot))
        unavailable = {**snapshot.unavailable, "machine": tr(ENDED)}
        status = "finished" if snapshot.status == "finished" else "quiet"
        ending = self._ending(status)
        snapshot = replace(
            snapshot, status=status, eta_s=None, ended_s=self._ended_s, ending=ending, unavailable=unavailable
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
        """Look for the job's files. A record of its own is kept; another one until somebody else claims it."""
        job, table = self._job, ProcessTable()
        if job is None:
            return
        if table.is_alive(job.pid):
            self._follow(job, table)
        before = self._found
        if before is not None and before.is_its_own and not before.event_files:
            return
        found = find_metrics(job, self._clues, table)
        if found is None:
            if before is not None and not before.is_its_own:
                self._found = self._files = None
            return
        self._found = found
        if before is None or before.target != found.target:
            # Beside event files a log adds nothing; beside states it tells what came since the last checkpoint.
            log = None if found.is_its_own else self._clues.log
            # More files of the same place are taken up by the source that reads it.
            find = (lambda: self._found.event_files if self._found else {}) if found.event_files else None
            self._files = open_files_source(found.target, clock=self._clock, log=log, find=find)

    def _reasons(self, snapshot: Snapshot) -> dict[str, str]:
        """Why there are no metrics, or no log."""
        clues, reasons = self._clues, {}
        if clues.unreadable is not None:
            reasons["metrics"] = clues.unreadable
        elif not snapshot.metrics:
            looked = [str(path) for path in (*clues.outputs, clues.log, clues.cwd) if path is not None]
            reasons["metrics"] = tr(
                "It has not written any known metrics (looked in {places}).", places=", ".join(looked[:3])
            )
        if not snapshot.log and clues.unreadable is None and clues.log_reason is not None:
            reasons["log"] = clues.log_reason
        return reasons

    def _ending(self, status: str) -> Ending:
        if self._job is None:
            return Ending(tr("Process {pid} has ended.", pid=self.target.pid))
        when = time.strftime("%H:%M:%S", time.localtime(self._ended_s))
        if status == "finished":
            return Ending(tr("It reached its last step; its processes had ended by {time}.", time=when))
        return Ending(
            tr(
                "Its processes had ended by {time}; how they ended is unknown because another program started them.",
                time=when,
            ),
            remedy=tr("See why in {path}.", path=self._log_path) if self._log_path is not None else None,
        )


class FolderSource(JobSource):
    """A folder: its files, and the job of this machine that writes to it while there is one."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(target, clock=clock)
        self._files: Source = open_files_source(target, clock=clock)
        self._checkpoint_size = CheckpointSize(target.path, clock=clock)
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
        return self._with_machine(snapshot, self._checkpoint_size.next_bytes())

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
        if any(_holds(output, place) for output in clues.outputs):
            claims.append(job)
    return claims[0] if len(claims) == 1 else None


def _holds(folder: Path, place: Path) -> bool:
    try:
        return place.is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False
