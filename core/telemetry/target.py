"""Target: what a monitor is to look at, as plain data; `open_source` makes it a source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.snapshot import SourceKind
from trainwiz.core.telemetry.source import Source


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
    if target.kind == "process":
        from trainwiz.core.telemetry.process_source import ProcessSource

        return ProcessSource(target, clock=clock)
    from trainwiz.core.telemetry.folder_source import FolderSource

    return FolderSource(open_files_source(target, clock=clock), target.path, clock=clock)


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
    if target.kind == "trainer":
        from trainwiz.core.telemetry.trainer_folder import TrainerSource

        return TrainerSource(target, clock=clock, log=log)
    from trainwiz.core.telemetry.tensorboard import TensorBoardSource

    return TensorBoardSource(target, clock=clock, find=find)
