"""Target: what is watched, and the Source that reads it; the files of others as a source."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.metrics import NO_SERIES, Series
from trainwiz.core.telemetry.snapshot import Ending, Snapshot, SourceKind, finished_words
from trainwiz.core.telemetry.words import span_words, step_words
from trainwiz.core.text import moment_words

# Source: anything that a monitor can look at again and again; each look costs what is new since the last one.

READ_ALL_S = 10.0


class Source(ABC):
    """Not thread-safe: one thread polls; the snapshots can go anywhere."""

    @abstractmethod
    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look. `curves` names the metrics whose points are wanted.

        Raises nothing: what cannot be read is a sentence in `Snapshot.problems`. Reads for POLL_S at
        most; what is left is read by the next looks (`Snapshot.behind`).
        """

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """Look until nothing is left to read, for READ_ALL_S at most; then it says of how much the look is."""
        wanted = tuple(curves)
        deadline = time.monotonic() + READ_ALL_S
        snapshot = self.poll(wanted)
        while snapshot.behind and time.monotonic() < deadline:
            snapshot = self.poll(wanted)
        if not snapshot.behind:
            return snapshot
        covered = tr(
            "Its files are long: {percent}% of them are read so far; values, counts and extremes cover only that part.",
            percent=f"{snapshot.read_share * 100:.0f}",
        )
        return replace(snapshot, problems=(*snapshot.problems, covered))

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Let go of drivers and files; a closed source is not polled again."""


@dataclass(frozen=True, slots=True)
class Target:
    """A run folder, the output folder of a Trainer, a folder (or file) of TensorBoard events, or a process."""

    kind: SourceKind
    path: Path
    """The folder or file; for a process its working folder."""
    name: str
    """For titles; plain text from anywhere."""
    pid: int | None = None
    started_s: float | None = None
    """Creation time of the process `pid`, so that a reused number is not mistaken for it."""
    replay_speed: float | None = None
    """Of a run that has ended and is to be played: seconds of the run in one second."""

    @classmethod
    def of_run(cls, folder: RunFolder) -> Target:
        return cls("run", folder.path, folder.path.resolve().name)


# FilesSource: the files of a training that trainwiz did not start: what their reader found, as a snapshot.

POLL_S = 0.2
"""One look reads for this long at most; what is left is read by the next ones (`Snapshot.behind`)."""
QUIET_AFTER_S = 120.0
QUIET_AFTER_PAUSES = 10.0

NOTHING = Snapshot("trainer", path="", name="", status="quiet", time_s=0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the files of a job say."""

    shown: Snapshot = NOTHING
    """With what the files themselves tell; the metrics, the moment, the status and what follows from them are left open."""
    series: Mapping[str, Series] = field(default_factory=dict)
    loss: Series = NO_SERIES
    """What is logged as the training's loss."""
    written_by_file_time: bool = False
    """`written_s` is the time of a file, which a copy has too: it does not show that something runs."""
    ended: bool = False
    """The job itself wrote that its training ended."""
    grew: bool = False
    """Files gained something since the look before."""


Read = Callable[[float], Reading]
"""Reads what is new in files of one format until time.monotonic() is the deadline. Raises nothing."""


class FilesSource(Source):
    """Files alone: of processes and machines it knows nothing."""

    def __init__(self, target: Target, read: Read, *, clock: Callable[[], float] = time.time) -> None:
        self.target = target
        self._read = read
        self._clock = clock
        self._has_read = False
        self._grew_s: float | None = None

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        reading = self._read(time.monotonic() + POLL_S)
        now, shown, loss = self._clock(), reading.shown, reading.loss
        if reading.grew and self._has_read and not shown.behind:
            # What the first looks find was there before; whatever comes later is being written.
            self._grew_s = now
        self._has_read = self._has_read or not shown.behind
        written_s = max((t for t in (shown.written_s, self._grew_s) if t is not None), default=None)
        status = status_of(reading, now, self._grew_s if reading.written_by_file_time else written_s)
        runs = status == "running"
        snapshot = replace(
            shown,
            source=self.target.kind,
            path=str(self.target.path),
            name=self.target.name,
            status=status,
            time_s=now,
            metrics={name: tag.summary() for name, tag in reading.series.items()},
            eta_s=shown.left_s if runs else None,
            ended_s=written_s if status == "finished" else None,
            written_s=written_s,
            curves={name: tag.curve() for name in curves if (tag := reading.series.get(name))},
            non_finite_steps=loss.non_finite_steps,
            ending=None if runs or shown.behind else _ending(status, shown, loss, now, written_s),
        )
        return replace(snapshot, advice=advise(snapshot))


def status_of(reading: Reading, now: float, written_s: float | None) -> str:
    """The rule for jobs that leave no state behind, as far as their files go.

    "finished": the planned steps are reached, or the job wrote that it ended. "running": something was written within QUIET_AFTER_S
    or the time of QUIET_AFTER_PAUSES pauses between two points, whichever is longer. "quiet":
    anything else; where the process that writes is seen (job_source), that is "running" as well.
    """
    step, max_steps = reading.shown.step, reading.shown.max_steps
    if reading.ended or (step is not None and max_steps and step >= max_steps):
        return "finished"
    times = [time_s for _, time_s, _ in reading.loss.recent]
    pause_s = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    patience_s = max(QUIET_AFTER_S, pause_s * QUIET_AFTER_PAUSES)
    return "running" if written_s is not None and now - written_s <= patience_s else "quiet"


def _ending(status: str, shown: Snapshot, loss: Series, now: float, written_s: float | None) -> Ending:
    if status == "finished":
        place = None if shown.step is None else step_words(shown.step, shown.max_steps)
        return Ending(finished_words(place, loss.first, loss.last))
    if written_s is None:
        return Ending(tr("The time of the last write is unknown."))
    ago = span_words(max(0.0, now - written_s))
    return Ending(tr("Quiet: last written {ago} ago, {when}.", ago=ago, when=moment_words(written_s)))


def open_source(target: Target, *, clock: Callable[[], float] = time.time) -> Source:
    """The source that reads `target`. Opens nothing that could fail: that is said by its first look."""
    if target.replay_speed is not None:
        from trainwiz.core.telemetry.run_source import ReplaySource

        return ReplaySource(RunFolder(target.path), target.replay_speed)
    if target.kind == "run":
        from trainwiz.core.telemetry.run_source import RunSource

        return RunSource(RunFolder(target.path), clock=clock)
    from trainwiz.core.telemetry.job_source import FolderSource, ProcessSource

    return (ProcessSource if target.kind == "process" else FolderSource)(target, clock=clock)


def open_files_source(
    target: Target,
    *,
    clock: Callable[[], float] = time.time,
    log: Path | None = None,
    find: Callable[[], Mapping[str, Sequence[Path]]] | None = None,
) -> Source:
    """The source of the files alone that a Trainer or TensorBoard writes: it knows no processes.

    For whom knows: `log` is where the standard output of the Trainer goes, `find` names the event
    files of each run.
    """
    from trainwiz.core.telemetry.trainer_folder import EventsReader, TrainerReader, find_scalar_files

    if target.kind == "trainer":
        return FilesSource(target, TrainerReader(target.path, log, find).read, clock=clock)
    return FilesSource(target, EventsReader(find or partial(find_scalar_files, target.path)).read, clock=clock)
