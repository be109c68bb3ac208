"""CheckpointSize: how much disk the next checkpoint will take, from those that are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.run.checkpoints import CHECKPOINT_NAME
from trainwiz.core.telemetry.checkpoint_room import Saves
from trainwiz.core.telemetry.run_setup import RunSetup

LOOK_EVERY_S = 10.0
SETTLED_AFTER_S = 60.0
"""A checkpoint that was written to within this time may not be whole yet."""


class CheckpointSize:
    """Of one output folder. Looks into it rarely, and measures a checkpoint once."""

    def __init__(
        self, folder: Path, *, clock: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._ticks = ticks
        self._next_look = 0.0
        self._measured: tuple[str, int] | None = None
        self._settled = False
        self._usual: tuple[str, int] | None = None
        self.present = 0
        """Checkpoints that lie there, as of the last look."""

    def next_bytes(self) -> int | None:
        """Bytes of the newest checkpoint; None where there is none, or one is being written now."""
        self._look_now_and_then()
        return self._measured[1] if self._measured is not None and self._settled else None

    def usual_bytes(self) -> int | None:
        """Bytes of a checkpoint of this run, also while the next is being written; None before there is one."""
        self._look_now_and_then()
        return self._usual[1] if self._usual is not None else None

    def _look_now_and_then(self) -> None:
        now = self._ticks()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._look()

    def _look(self) -> None:
        checkpoints = _checkpoints(self.folder)
        self.present = len(checkpoints)
        newest = Path(max(checkpoints)[1]) if checkpoints else None
        if newest is None:
            self._measured = None
            return
        if self._settled and self._measured is not None and self._measured[0] == newest.name:
            return
        size, changed_s = _size_of(newest)
        self._measured = newest.name, size
        self._settled = self._clock() - changed_s > SETTLED_AFTER_S
        if self._settled:
            self._usual = self._measured
        elif len(checkpoints) > 1:
            before = Path(sorted(checkpoints)[-2][1])
            if self._usual is None or self._usual[0] != before.name:
                # The one before was whole when the newest was begun.
                self._usual = before.name, _size_of(before)[0]


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


def _checkpoints(folder: Path) -> list[tuple[int, str]]:
    """(step, path) of each `checkpoint-N`."""
    try:
        with os.scandir(folder) as entries:
            paths = {entry.name: entry.path for entry in entries}
    except OSError:
        return []
    return [(int(found.group(1)), path) for name, path in paths.items() if (found := CHECKPOINT_NAME.fullmatch(name))]


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
