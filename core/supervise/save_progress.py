"""SaveProgress: whether a save under way still moves, so that the end of a stop's patience does not cut it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.run.checkpoints import CHECKPOINT_NAME
from trainwiz.core.run.folder import PARTIAL
from trainwiz.core.run.stop_window import LAST_FILE

STALLED_AFTER_S = 60.0
"""A save that has written nothing for so long is not waited for: its disk hangs, or there is none."""


ENDS_WITHIN_S = 15.0
"""After a save that outlasted the patience, its processes still have to end."""


class SaveProgress:
    """Looks at what is half written in a run folder: checkpoints without their last file, and `*.partial`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._moved_at: float | None = None

    def moves(self) -> bool:
        """Whether something half written has grown within the last STALLED_AFTER_S; the first look counts as growth.

        True for ENDS_WITHIN_S more when it is whole.
        """
        now, found = self._clock(), self._half_written()
        if found and (self._moved_at is None or any(size != self._seen.get(name) for name, size in found.items())):
            self._moved_at = now
        self._seen = found
        patience_s = STALLED_AFTER_S if found else ENDS_WITHIN_S
        return self._moved_at is not None and now - self._moved_at <= patience_s

    def _half_written(self) -> dict[str, int]:
        """Name -> bytes so far."""
        try:
            paths = [path for path in self._folder.iterdir() if _is_half_written(path)]
        except OSError:
            return {}
        return {path.name: _bytes_below(path) for path in paths}


def _is_half_written(path: Path) -> bool:
    if path.name.endswith(PARTIAL):
        return path.is_dir()
    return CHECKPOINT_NAME.fullmatch(path.name) is not None and not (path / LAST_FILE).exists()


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(root, name).stat().st_size
            except OSError:
                continue
    return total
