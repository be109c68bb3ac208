"""A training that trainwiz did not start, as a source: its files, its processes, and the machine under them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from trainwiz.core.language import mark, tr
from trainwiz.core.lines import TextTail
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.lost import CREATE_TIME_TOLERANCE_S
from trainwiz.core.telemetry.advice import LIVE_RULES, worst_first
from trainwiz.core.telemetry.diagnosed import LogDiagnosis
from trainwiz.core.telemetry.job import (
    Job,
    began,
    job_of,
    named_writer,
    training_tops,
)
from trainwiz.core.telemetry.job_metrics import (
    EVENT_FILE_RANK,
    Clues,
    FoundMetrics,
    clues_of,
    find_metrics,
)
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.machine import MachineHistory, MachineSampler
from trainwiz.core.telemetry.processes import ProcessSampler, ProcessTable
from trainwiz.core.telemetry.run_setup import CheckpointSize
from trainwiz.core.telemetry.snapshot import Ending, Snapshot, time_left_s
from trainwiz.core.telemetry.target import Source, Target, open_files_source
from trainwiz.core.telemetry.words import step_words

LOOK_EVERY_S = 5.0
"""How often a job, or its files, are looked for: an event file appears with the first logged step."""
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
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
    """What a process and a folder that somebody writes to have in common: a job, its log and its machine."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        self.target = target
        self._clock = clock
        self._job: Job | None = None
        self._clues = Clues(cwd=None)
        self._machine: MachineSampler | None = None
        self._processes: ProcessSampler | None = None
        self._next_sample_s = 0.0
        self._history = MachineHistory()
        self._log = LogLines()
        self._log_tail: TextTail | None = None
        self._diagnosis = LogDiagnosis()
        self._next_look_s = 0.0

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """As any source; where there is a job it samples twice, so that the only look knows the CPU load."""
        wanted = tuple(curves)
        snapshot = super().read_all(wanted)
        if self._machine is None:
            return snapshot
        time.sleep(FIRST_LOAD_S)
        self._next_sample_s = 0.0
        return super().read_all(wanted)

    def _follow(self, job: Job, table: ProcessTable) -> None:
        self._clues = clues_of(job, table)
        log = self._clues.log
        if log is not None and (self._log_tail is None or log != self._log_tail.path):
            self._log_tail = TextTail(log)
            self._log.clear()
        if self._machine is None:
            place = self._clues.cwd if self.target.kind == "process" else self.target.path
            self._processes = ProcessSampler(job.pid)
            self._machine = MachineSampler(place or self.target.path, clock=self._clock)

    def _with_log(self, snapshot: Snapshot) -> Snapshot:
        if self._log_tail is None or snapshot.log:
            return snapshot
        return replace(snapshot, log=self._log.read(self._log_tail), log_path=str(self._log_tail.path))

    def _with_machine(self, snapshot: Snapshot, checkpoint_bytes: int | None = None) -> Snapshot:
        now = time.monotonic()
        if self._machine is not None and self._processes is not None and now >= self._next_sample_s:
            self._next_sample_s = now + SAMPLE_EVERY_S
            self._history.add_rows([self._machine.sample(self._processes.sample())])
        snapshot = self._diagnosis.add_to(while_it_runs(snapshot), runs=True)
        return with_machine(snapshot, self._history, uses_gpu=self._clues.uses_gpu, checkpoint_bytes=checkpoint_bytes)

    def _look_again_after(self, cost_s: float) -> None:
        self._next_look_s = time.monotonic() + max(LOOK_EVERY_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)


def while_it_runs(snapshot: Snapshot) -> Snapshot:
    """`snapshot` of files whose writer is alive: they may rest, as in a long step, and the job does not.

    One that has reached its last step stays finished: its processes save, or wait in a notebook.
    """
    if snapshot.status == "finished":
        return snapshot
    left_s = time_left_s(snapshot.step, snapshot.max_steps, snapshot.pace.wall_step_s or snapshot.pace.step_s)
    eta_s = snapshot.eta_s if left_s is None else left_s
    return replace(snapshot, status="running", ending=None, ended_s=None, eta_s=eta_s)


def with_machine(
    snapshot: Snapshot, machine: MachineHistory, *, uses_gpu: bool | None, checkpoint_bytes: int | None = None
) -> Snapshot:
    """`snapshot` with the readings of `machine`, their reasons and their advice added to its own.

    `uses_gpu`: whether the job has a card open; None where that is not known. `checkpoint_bytes`: what its
    next checkpoint takes.
    """
    gpus, reasons = machine.gpus(), machine.unavailable()
    holds_memory = any(gpu.job_memory_bytes for gpu in gpus)
    if uses_gpu and gpus and not holds_memory:
        reasons["job_gpu_memory"] = tr(
            "The driver lists no process of this job on any GPU (in a container it uses the process IDs of the "
            "host), so the memory used by the job is unknown."
        )
    snapshot = replace(
        snapshot,
        gpus=gpus,
        host=machine.host(),
        processes=machine.processes(),
        job_cpu_history=machine.job_cpu_history(),
        checkpoint_bytes=checkpoint_bytes,
        unavailable={**snapshot.unavailable, **reasons},
        engine=snapshot.engine if uses_gpu is not False or holds_memory else {**snapshot.engine, **CPU_ENGINE},
    )
    live = [item for rule in LIVE_RULES for item in rule(snapshot)]
    return replace(snapshot, advice=worst_first(snapshot.advice, live))


def with_reasons(snapshot: Snapshot, reasons: Mapping[str, str]) -> Snapshot:
    """`snapshot` with sentences that say why something is not shown: beside the value, and as notes to read."""
    notes = [Advice(f"no_{what}", "note", reason) for what, reason in reasons.items()]
    unavailable = {**snapshot.unavailable, **reasons}
    return replace(snapshot, unavailable=unavailable, advice=worst_first(snapshot.advice, notes))


# A process: all of its job, and its metrics wherever it is proved that it writes them.


class ProcessSource(JobSource):
    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(target, clock=clock)
        self._found: FoundMetrics | None = None
        self._metrics: Source | None = None
        self._ended_s: float | None = None

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        # The processes are asked first: a job that has ended by then has written all its lines.
        alive = self._look()
        if self._metrics is not None:
            snapshot = self._metrics.poll(curves)
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
        status = "finished" if snapshot.status == "finished" else "quiet"
        unavailable = {**snapshot.unavailable, "machine": tr(ENDED)}
        ending = self._ending(snapshot)
        snapshot = replace(
            snapshot, status=status, eta_s=None, ended_s=self._ended_s, ending=ending, unavailable=unavailable
        )
        return self._diagnosis.add_to(snapshot, runs=False)

    def close(self) -> None:
        for held in (self._machine, self._metrics):
            if held is not None:
                held.close()

    def _look(self) -> bool:
        """Bring processes and the search for files up to date; whether the job is alive."""
        if self._job is None and self._ended_s is None:
            self._job = self._find_job()
            self._ended_s = self._clock() if self._job is None else None
        if self._job is None or self._ended_s is not None:
            return False
        alive = self._job.is_alive()
        if not alive or time.monotonic() >= self._next_look_s:
            self._search(self._job)
        self._ended_s = None if alive else self._clock()
        return alive

    def _find_job(self) -> Job | None:
        job = job_of(self.target.pid, ProcessTable()) if self.target.pid is not None else None
        started_s = self.target.started_s
        reused = job is not None and started_s is not None and job.started_s > started_s + CREATE_TIME_TOLERANCE_S
        return None if reused else job

    def _search(self, job: Job) -> None:
        """Look for the job's files. What was found well is kept."""
        started_s = time.thread_time()
        table = ProcessTable()
        if table.is_alive(job.pid):
            self._follow(job, table)
        if self._found is None or self._found.rank > EVENT_FILE_RANK or self._found.event_files:
            self._take(find_metrics(job, self._clues, table))
        self._look_again_after(time.thread_time() - started_s)

    def _take(self, found: FoundMetrics | None) -> None:
        """Read from a better place than before; the same one goes on, until somebody else claims it."""
        before = self._found
        if found is None:
            if before is not None and before.rank > EVENT_FILE_RANK:
                self._let_go()
            return
        if before is not None and before.target == found.target:
            # More files of the same place are taken up by the source that reads it.
            self._found = found
        elif before is None or found.rank < before.rank or before.event_files:
            self._let_go()
            # Beside event files a log adds nothing; beside states it tells what came since the last checkpoint.
            log = self._clues.log if found.rank > EVENT_FILE_RANK else None
            find = (lambda: self._found.event_files if self._found else {}) if found.event_files else None
            self._found, self._metrics = found, open_files_source(found.target, clock=self._clock, log=log, find=find)

    def _let_go(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._found, self._metrics = None, None

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

    def _ending(self, snapshot: Snapshot) -> Ending:
        if self._job is None:
            return Ending(tr("Process {pid} has ended.", pid=self.target.pid))
        when = time.strftime("%H:%M:%S", time.localtime(self._ended_s))
        if snapshot.status == "finished":
            return Ending(tr("It reached its last step; its processes had ended by {time}.", time=when))
        return Ending(
            tr(
                "Its processes had ended by {time}; how they ended is unknown because another program started them.",
                time=when,
            ),
            remedy=tr("See why in {path}.", path=self._log_tail.path) if self._log_tail is not None else None,
        )


# A folder: its files, and the job of this machine that writes to it while there is one.


class FolderSource(JobSource):
    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(target, clock=clock)
        self._files = open_files_source(target, clock=clock)
        self._checkpoint_size = CheckpointSize(target.path, clock=clock)
        self._writer_gone = False
        """The process that wrote was seen, or named by a file, and has ended."""

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        if self._job is not None and not self._job.is_alive():
            self._writer_gone = True
            self._drop()
        snapshot = self._files.poll(curves)
        if not snapshot.behind and time.monotonic() >= self._next_look_s:
            self._look(tuple(map(Path, snapshot.read_from)))
        if self._job is None:
            snapshot = self._diagnosis.add_to(self._once_its_writer_is_gone(snapshot), runs=False)
            return with_reasons(snapshot, {"machine": tr(NOT_HERE)})
        started_s = snapshot.started_s or self._job.started_s
        snapshot = replace(self._with_log(snapshot), command=self._job.command, started_s=started_s)
        return self._with_machine(snapshot, self._checkpoint_size.next_bytes())

    def close(self) -> None:
        self._files.close()
        self._drop()

    def _once_its_writer_is_gone(self, snapshot: Snapshot) -> Snapshot:
        """Files that were written just now look alive; not where their writer is known to have ended."""
        if not self._writer_gone or snapshot.status != "running" or snapshot.behind:
            return snapshot
        said = tr("The process that wrote it has ended; how it ended is unknown.")
        if snapshot.step is not None:
            place = step_words(snapshot.step, None)
            said = tr("The process that wrote it has ended at {place}; how it ended is unknown.", place=place)
        return replace(snapshot, status="quiet", eta_s=None, ending=Ending(said))

    def _look(self, files: Iterable[Path]) -> None:
        """Look for the job, or at what a known one has open now."""
        started_s = time.thread_time()
        table = ProcessTable()
        if self._job is None:
            self._job = job_writing_to(self.target.path, files, table)
            if self._job is not None:
                self._writer_gone = False
            else:
                self._writer_gone = self._writer_gone or any(named_writer(file) is not None for file in files)
        if self._job is not None:
            self._follow(self._job, table)
        self._look_again_after(time.thread_time() - started_s)

    def _drop(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._job, self._machine, self._history = None, None, MachineHistory()
        self._log, self._log_tail = LogLines(), None


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
