"""A process as a source."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import read_json
from trainwiz.core.run.lost import CREATE_TIME_TOLERANCE_S
from trainwiz.core.telemetry.foreign_log import JobLog, LogDiagnosis, while_it_runs, with_machine, with_reasons
from trainwiz.core.telemetry.job import Job, job_of
from trainwiz.core.telemetry.job_metrics import EVENT_FILE_RANK, Clues, FoundMetrics, Unproved, clues_of, find_metrics
from trainwiz.core.telemetry.machine import LiveMachine, MachineHistory
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.target import Source, Target

# What model a folder of a training holds, by the settings that transformers and peft save.


def model_name(folder: Path) -> str | None:
    """The base model by its hub id or path, else its architecture; None where nothing says."""
    folders = [folder, *sorted(folder.glob("checkpoint-*"), reverse=True)[:1]]
    for name, key in (("adapter_config.json", "base_model_name_or_path"), ("config.json", "_name_or_path")):
        for place in folders:
            found = (read_json(place / name) or {}).get(key)
            if isinstance(found, str) and found:
                return _last_parts(found)
    for place in folders:
        config: dict[str, Any] = dict(read_json(place / "config.json") or {})
        architectures = config.get("architectures")
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
            return architectures[0]
        if isinstance(config.get("model_type"), str):
            return str(config["model_type"])
    return None


def _last_parts(name: str) -> str:
    """A hub id as it is; of a path of any system its last part."""
    if name.count("/") <= 1 and "\\" not in name and not name.startswith((".", "/", "~")):
        return name
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or name


# ProcessSource: looks at a training that was started elsewhere, by its processes.

LOOK_EVERY_S = 5.0
"""How often the job's files are looked for: an event file appears with the first logged step."""
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
LOOK_EVERY_S_WHILE_NEW = 1.0
SHARE_OF_A_CORE_WHILE_NEW = 0.02
NEW_S = 180.0
"""A job this young is about to write its first metrics."""
ENDED = mark("its processes have ended, and those of others are not shown")
FIRST_LOAD_S = 0.3
"""`read_all` waits this long between two samples: CPU load is what happened in between."""


class ProcessSource(Source):
    """All processes of one job, the machine under it, and its metrics wherever it writes them."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time) -> None:
        self.target = target
        self._clock = clock
        self._job: Job | None = None
        self._clues = Clues(cwd=None)
        self._next_look_s = 0.0
        self._found: FoundMetrics | None = None
        self._unproved: Unproved | None = None
        self._metrics: Source | None = None
        self._machine: LiveMachine | None = None
        self._history = MachineHistory()
        self._log = JobLog()
        self._ended_s: float | None = None
        self._diagnosis = LogDiagnosis()

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look at the processes, their machine and their files."""
        # The processes are asked first: a job that has ended by then has written all its lines.
        alive = self._look()
        snapshot = self._log.laid_over(self._metrics_snapshot(curves))
        job = self._job
        snapshot = dataclasses.replace(
            snapshot,
            source="process",
            path=str(self._clues.cwd or self.target.path),
            name=self.target.name,
            command=job.command if job else None,
            started_s=job.started_s if job else self.target.started_s,
        )
        if not alive:
            status = "finished" if snapshot.status == "finished" else "quiet"
            ending = self._ending(snapshot)
            unavailable = {**snapshot.unavailable, "machine": tr(ENDED)}
            snapshot = dataclasses.replace(
                snapshot, status=status, eta_s=None, ended_s=self._ended_s, ending=ending, unavailable=unavailable
            )
            return self._diagnosis.add_to(snapshot, runs=False)
        snapshot = self._diagnosis.add_to(while_it_runs(snapshot), runs=True)
        snapshot = with_machine(snapshot, self._history, uses_gpu=self._clues.uses_gpu)
        return with_reasons(snapshot, self._reasons(snapshot))

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """As any source; and samples twice, so that the only look knows the CPU load."""
        wanted = tuple(curves)
        if self._machine is None and self._look() and self._machine is not None:
            time.sleep(FIRST_LOAD_S)
            self._machine.hurry()
        return super().read_all(wanted)

    def close(self) -> None:
        for held in (self._machine, self._metrics):
            if held is not None:
                held.close()

    def _look(self) -> bool:
        """Bring processes, samples and the search for files up to date; whether the job is alive."""
        if self._job is None and self._ended_s is None:
            self._find_job()
        if self._job is None or self._ended_s is not None:
            return False
        if not self._job.is_alive():
            self._search(self._job)
            self._ended_s = self._clock()
            return False
        if time.monotonic() >= self._next_look_s:
            self._search(self._job)
        if self._machine is None:
            roots = (root.pid for root in self._job.roots)
            self._machine = LiveMachine(roots, self._clues.cwd or self.target.path, clock=self._clock)
        row = self._machine.sample()
        if row is not None:
            self._history.add_rows([row])
        return True

    def _find_job(self) -> None:
        job = job_of(self.target.pid, ProcessTable()) if self.target.pid is not None else None
        started_s = self.target.started_s
        if job is None or (started_s is not None and job.started_s > started_s + CREATE_TIME_TOLERANCE_S):
            self._ended_s = self._clock()
            return
        self._job = job

    def _search(self, job: Job) -> None:
        """Look for the job's files, as often as keeps it cheap. What was found well is kept."""
        started_s = time.thread_time()
        table = ProcessTable()
        if any(table.is_alive(root.pid) for root in job.roots):
            self._clues = clues_of(job, table)
        if self._found is None or self._found.rank > EVENT_FILE_RANK or self._found.event_files:
            self._take(find_metrics(job, self._clues, table, recognised))
        self._log.follow(self._clues.log)
        cost_s = time.thread_time() - started_s
        is_new = self._found is None and self._clock() - job.started_s < NEW_S
        dear_s = cost_s / (SHARE_OF_A_CORE_WHILE_NEW if is_new else SHARE_OF_A_CORE_FOR_LOOKS)
        self._next_look_s = time.monotonic() + max(LOOK_EVERY_S_WHILE_NEW if is_new else LOOK_EVERY_S, dear_s)

    def _take(self, found: FoundMetrics | Unproved | None) -> None:
        """Read from a better place than before; the same one goes on, until somebody else claims it."""
        self._unproved = found if isinstance(found, Unproved) else None
        if isinstance(found, Unproved):
            if self._found is not None and found.path == self._found.target.path and self._metrics is not None:
                self._metrics.close()
                self._found, self._metrics = None, None
            return
        if found is None or (self._found is not None and found.rank > self._found.rank):
            return
        if self._found is not None and self._found.target == found.target:
            # More files of the same place are taken up by the source that reads it.
            self._found = found
            return
        if self._found is not None and found.rank == self._found.rank and not found.event_files:
            return
        from trainwiz.core.telemetry.target import open_files_source

        if self._metrics is not None:
            self._metrics.close()
        # Beside event files a log adds nothing; beside states it tells what came since the last checkpoint.
        log = self._clues.log if found.rank > EVENT_FILE_RANK else None
        self._found, self._metrics = (
            found,
            open_files_source(
                found.target, clock=self._clock, log=log, find=self._own_event_files if found.event_files else None
            ),
        )

    def _own_event_files(self) -> dict[str, list[Path]]:
        runs = self._found.event_files if self._found is not None else {}
        return {name: list(files) for name, files in runs.items()}

    def _metrics_snapshot(self, curves: Iterable[str]) -> Snapshot:
        if self._metrics is not None:
            return self._metrics.poll(curves)
        return Snapshot(
            source="process",
            path=str(self.target.path),
            name=self.target.name,
            status="running",
            time_s=self._clock(),
        )

    def _reasons(self, snapshot: Snapshot) -> dict[str, str]:
        """Why there are no metrics, or no log."""
        clues, reasons = self._clues, {}
        if clues.unreadable is not None:
            reasons["metrics"] = clues.unreadable
        elif not snapshot.metrics and self._unproved is not None:
            reasons["metrics"] = tr(
                "{path} was written since this process began, but {why}, so its figures are not shown. "
                "Open it by hand: `{command}`",
                path=self._unproved.path,
                why=self._unproved.why,
                command=shlex.join(["trainwiz", "monitor", str(self._unproved.path)]),
            )
        elif not snapshot.metrics:
            looked = [str(path) for path in (*clues.outputs, clues.log, clues.cwd) if path is not None]
            reasons["metrics"] = tr("It has not written metrics that are known here.")
            if looked:
                places = ", ".join(looked[:3])
                reasons["metrics"] = tr(
                    "It has not written metrics that are known here (looked in {places}).", places=places
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
                "Its processes had ended by {time}; how they ended is not known, as another program started them.",
                time=when,
            ),
            remedy=tr("Read why in {path}.", path=self._log.path) if self._log.path is not None else None,
        )


def recognised(path: Path) -> Target | str:
    """What a file or folder is, or why nothing that is known here."""
    from trainwiz.core.telemetry.discovery import recognise

    return recognise(path)
