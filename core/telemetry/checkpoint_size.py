"""CheckpointSize: how much disk the next checkpoint will take, from those that are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.run.checkpoints import CHECKPOINT_NAME

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

    def next_bytes(self) -> int | None:
        """Bytes of the newest checkpoint; None where there is none, or one is being written now."""
        now = self._ticks()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._look()
        return self._measured[1] if self._measured is not None and self._settled else None

    def _look(self) -> None:
        newest = _newest_checkpoint(self.folder)
        if newest is None:
            self._measured = None
            return
        if self._settled and self._measured is not None and self._measured[0] == newest.name:
            return
        size, changed_s = _size_of(newest)
        self._measured = newest.name, size
        self._settled = self._clock() - changed_s > SETTLED_AFTER_S


def _newest_checkpoint(folder: Path) -> Path | None:
    """The `checkpoint-N` with the highest step."""
    try:
        with os.scandir(folder) as entries:
            paths = {entry.name: entry.path for entry in entries}
    except OSError:
        return None
    steps = [(int(found.group(1)), path) for name, path in paths.items() if (found := CHECKPOINT_NAME.fullmatch(name))]
    return Path(max(steps)[1]) if steps else None


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
