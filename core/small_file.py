"""The one way to open a file that somebody names, or that lies in a folder that somebody names.

There may be anything of that name: a pipe or a device never ends, and opening one may wait for ever; a file of /proc
may wait, or take what it reads from others (kmsg); a huge file fills the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from trainwiz.core.language import tr

MOST_BYTES = 64 * 2**20
"""More than any profile, settings file, DeepSpeed file or description of a model has."""


def open_file(path: Path) -> BufferedReader:
    """To read bytes. Raises OSError with a reason at once, also for what is no regular file on a disk."""
    return open(path, "rb", opener=open_at_once)


def read_small(path: Path, most: int = MOST_BYTES) -> bytes:
    """The whole file. Raises OSError as `open_file`, and for one above `most` bytes."""
    if "\0" in str(path):
        # No name of a file holds one, and Python says so with another exception.
        raise OSError(errno.EINVAL, tr("it is no regular file"), str(path))
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, tr("it has more than {size} MiB", size=most >> 20), str(path))
        return file.read(most)


def open_at_once(name: str, flags: int) -> int:
    """An opener for `open`, and as os.open."""
    descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and not _is_of_the_kernel(descriptor):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, tr("it is no regular file"), name)


def _is_of_the_kernel(descriptor: int) -> bool:
    """Whether it is a file of /proc or /sys, through a link too: they are called regular."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(("/proc/", "/sys/"))
    except OSError:
        return False


ROWS = ".rows"
"""Rows on disk of a streamed run; built again when absent."""
