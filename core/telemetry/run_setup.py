"""How a run reads its data and saves, and the disk that it still takes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.lines import Seldom
from trainwiz.core.telemetry.trainer_files import checkpoints_in
from trainwiz.core.text import whole_in


@dataclass(frozen=True, slots=True)
class RunSetup:
    """As read inside the training process; None where an older run does not say it."""

    workers: int | None = None
    """Loader workers of each training process; 0 where the process loads itself."""
    prefetch: int | None = None
    """Batches that each of them keeps ready."""
    accumulation: int = 1
    """Micro-batches of a step in each training process, which are taken at once."""
    processes: int = 1
    """Training processes, on all machines."""
    cpu_cores: int | None = None
    """That the training may use on its machine."""
    save_every_steps: int | None = None
    checkpoints_kept: int | None = None
    """Most complete checkpoints that lie there between two saves."""
    model_bytes: int = 0
    """Of the weights that the end of the run writes once more."""
    max_steps: int | None = None


def setup_of(engine: Mapping[str, Any]) -> RunSetup:
    """`engine` as state.json holds it."""
    parameters = whole_in(engine.get("parameters")) or 0
    return RunSetup(
        workers=whole_in(engine.get("workers")),
        prefetch=whole_in(engine.get("prefetch")),
        accumulation=whole_in(engine.get("gradient_accumulation_steps")) or 1,
        processes=whole_in(engine.get("world_size")) or 1,
        cpu_cores=whole_in(engine.get("cpu_cores")),
        save_every_steps=whole_in(engine.get("save_every_steps")) or None,
        checkpoints_kept=whole_in(engine.get("checkpoints_kept")),
        model_bytes=parameters * (4 if engine.get("weights_dtype") == "float32" else 2),
        max_steps=whole_in(engine.get("max_steps")),
    )


@dataclass(frozen=True, slots=True)
class Saves:
    """What a run has saved and will save."""

    checkpoint_bytes: int
    """Of one checkpoint."""
    present: int
    """Complete ones that lie there now."""
    kept: int | None
    """Most that lie there between two saves; None where all stay."""
    every_steps: int
    step: int
    max_steps: int
    model_bytes: int = 0
    """Written once more at the end."""

    @property
    def to_come(self) -> int:
        """Checkpoints that are still written; the last step saves in any case."""
        done = self.step // self.every_steps * self.every_steps
        return math.ceil(max(0, self.max_steps - done) / self.every_steps)

    @property
    def needed_bytes(self) -> int:
        """Most of the disk that the run will take beyond what it has now. A new checkpoint is whole before an old one goes."""
        checkpoints = self.to_come
        if self.kept is not None:
            checkpoints = min(checkpoints, max(0, self.kept + 1 - self.present))
        # At the end the checkpoint that was too many is gone, and the model takes its place.
        at_end = min(self.to_come, max(0, self.kept - self.present)) if self.kept is not None else self.to_come
        return max(checkpoints * self.checkpoint_bytes, at_end * self.checkpoint_bytes + self.model_bytes)

    def fails_at_step(self, free_bytes: int) -> int | None:
        """The step whose save (of the end: whose model) no longer fits into `free_bytes`; None where all fit."""
        if self.needed_bytes <= free_bytes:
            return None
        fitting = free_bytes // max(1, self.checkpoint_bytes)
        next_save = (self.step // self.every_steps + 1) * self.every_steps
        return min(self.max_steps, next_save + fitting * self.every_steps)

    @property
    def grows(self) -> bool:
        """Whether the next save leaves more on the disk than was there: until as many lie there as are kept."""
        return self.to_come > 0 and (self.kept is None or self.present < self.kept)


LOOK_EVERY_S = 10.0
SETTLED_AFTER_S = 60.0
"""A checkpoint that was written to within this time may not be whole yet."""


class CheckpointSize:
    """Of one output folder. Looks into it rarely."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._look = Seldom(LOOK_EVERY_S)
        self._newest: Path | None = None
        """The newest checkpoint, where it is whole."""
        self._usual: int | None = None
        self.present = 0
        """Checkpoints that lie there, as of the last look."""

    def next_bytes(self) -> int | None:
        """Bytes of the newest checkpoint; None where there is none, or one is being written now."""
        usual = self.usual_bytes()
        return usual if self._newest else None

    def usual_bytes(self) -> int | None:
        """Bytes of a checkpoint of this run, also while the next is being written; None before there is one."""
        self._look.do(self._measure)
        return self._usual

    def _measure(self) -> None:
        paths = [path for _, path in checkpoints_in(self.folder)]
        self.present = len(paths)
        if paths and paths[0] == self._newest:
            return
        self._newest = None
        for path in paths[:2]:
            size, changed_s = _size_of(path)
            settled = self._clock() - changed_s > SETTLED_AFTER_S
            # The one before was whole when the newest was begun.
            if settled or path != paths[0]:
                self._usual, self._newest = size, path if path == paths[0] else None
                return


def saves_of(setup: RunSetup, sizes: CheckpointSize, step: float | None) -> Saves | None:
    """What a run at `step` still saves; None where one of the facts is not known."""
    size = sizes.usual_bytes()
    if size is None or step is None or setup.save_every_steps is None or setup.max_steps is None:
        return None
    return Saves(
        checkpoint_bytes=size,
        present=sizes.present,
        kept=setup.checkpoints_kept,
        every_steps=setup.save_every_steps,
        step=int(step),
        max_steps=setup.max_steps,
        model_bytes=setup.model_bytes,
    )


def _size_of(folder: Path) -> tuple[int, float]:
    """(bytes of all files in it, when the last of them was changed); files that vanish meanwhile are left out."""
    size, changed_s = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - thousands of shards, each asked once
            except OSError:
                continue
            size += status.st_size
            changed_s = max(changed_s, status.st_mtime)
    return size, changed_s
