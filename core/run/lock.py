"""The lock of a run folder: one keeper at a time, held by the kernel, gone with its processes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from trainwiz.core.language import tr

LOCK_FILE = ".lock"


class RunLock:
    """An exclusive `flock` on the run folder's lock file.

    Children made by fork hold it too, until the last of them ends: the keeper's guard keeps it while
    it clears up after a killed keeper. Children made by exec do not inherit it.
    """

    def __init__(self, descriptor: int, note: str | None = None) -> None:
        self.descriptor = descriptor
        self.note = note
        """Why nothing is locked, where the file system knows no locks."""

    @classmethod
    def take(cls, folder: Path, wait_s: float = 0.0) -> RunLock | None:
        """The lock, or None when another process still holds it after `wait_s`. Raises OSError."""
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(descriptor)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    if time.monotonic() < deadline:
                        time.sleep(0.05)
                        continue
                    os.close(descriptor)
                    return None
                if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                    note = tr("This file system knows no locks: a second start is not prevented.")
                    return cls(descriptor, note)
                os.close(descriptor)
                raise

    def release(self) -> None:
        os.close(self.descriptor)
