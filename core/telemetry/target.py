"""Target: what is watched, and the Source that reads it."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.snapshot import Snapshot, SourceKind

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
            "Its files are long: {percent}% of them are read so far, and figures, counts and extremes are of a part.",
            percent=f"{snapshot.read_share * 100:.0f}",
        )
        return dataclasses.replace(snapshot, problems=(*snapshot.problems, covered))

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Let go of drivers and files; a closed source is not polled again."""


# Target: what a monitor is to look at, as plain data; `open_source` makes it a source.


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


def open_source(target: Target, *, clock: Callable[[], float] = time.time) -> Source:
    """The source that reads `target`. Opens nothing that could fail: that is said by its first look."""
    if target.replay_speed is not None:
        from trainwiz.core.telemetry.replay import ReplaySource

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
    find: Callable[[], dict[str, list[Path]]] | None = None,
) -> Source:
    """The source of the files alone that a Trainer or TensorBoard writes: it knows no processes.

    For whom knows: `log` is where the standard output of the Trainer goes, `find` names the event
    files of each run.
    """
    from trainwiz.core.telemetry.foreign import FilesSource, Reader

    reader: Reader
    if target.kind == "trainer":
        from trainwiz.core.telemetry.trainer_folder import TrainerReader

        reader = TrainerReader(target.path, log=log)
    else:
        from trainwiz.core.telemetry.tensorboard import ScalarsReader

        reader = ScalarsReader(target.path, find=find)
    return FilesSource(target, reader, clock=clock)
