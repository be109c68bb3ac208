"""One process of this machine at a time: the first builds a file, the others wait and find it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(lock: Path) -> Iterator[bool]:
    """Hold an exclusive `flock` on the file `lock`, which is made and stays. It is gone with its process.

    Waiting here has no time limit, unlike a barrier of the process group. False on a file system
    without locks, where nothing is held: what is built must be renamed into its place. Raises OSError.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
