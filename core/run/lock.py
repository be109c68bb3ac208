"""The lock of a run folder: one keeper at a time, held by the kernel, gone with its processes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Literal

from trainwiz.core.language import tr

LOCK_FILE = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
LockSeen = Literal["held", "free", "unknown"]
"""unknown: there is no lock file, it may not be read, or the file system knows no locks."""


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
                if error.errno in NO_LOCKS:
                    note = tr("This file system knows no locks: a second start is not prevented.")
                    return cls(descriptor, note)
                os.close(descriptor)
                raise

    @property
    def seen_by_holder(self) -> LockSeen:
        """What it tells its own holder about everybody else."""
        return "unknown" if self.note else "free"

    def release(self) -> None:
        os.close(self.descriptor)


def look_at_lock(folder: Path) -> LockSeen:
    """Whether somebody holds the lock of a run, from this computer or (NFS) another one.

    "held" is certain; "free" is not where each computer or container keeps locks to itself. The lock is
    taken shared for a moment: a start at that very moment waits for it.
    """
    try:
        # A pipe under this name would block.
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "unknown"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return "held" if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else "unknown"
    finally:
        os.close(descriptor)
    return "free"
