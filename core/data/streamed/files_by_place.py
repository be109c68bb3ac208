"""FilesByPlace: of files that are read here and there a few are open at a time, for a data set may be 10,000 shards."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from trainwiz.core.small_file import open_at_once

MOST_OPEN = 64
"""Of a process, which may have 256 on macOS and 1,024 on Linux, shared with those of the loaders."""


class FilesByPlace:
    """Reads by place, so that a forked loader worker may go on with the files that its parent opened."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, start: int, count: int) -> bytes:
        """`count` bytes from byte `start` on, fewer at the end of the file. Raises OSError."""
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is None:
                descriptor = open_at_once(str(path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self._open[path] = descriptor
            if len(self._open) > MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
            return os.pread(descriptor, count, start)

    def __del__(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
