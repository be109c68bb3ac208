"""Reading files that people name: small ones whole; a fingerprint of any size."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from trainwiz.core.language import tr

# The one way to open a file that somebody names, or that lies in a folder that somebody names.
#
# There may be anything of that name: a pipe or a device never ends, and opening one may wait for ever; a huge file
# fills the memory.

MOST_BYTES = 64 * 2**20
"""More than any profile, settings file, DeepSpeed file or description of a model has."""


def open_file(path: Path) -> BufferedReader:
    """To read bytes. Raises OSError with a reason at once, also for what is no regular file on a disk."""
    return open(path, "rb", opener=open_at_once)


def read_small(path: Path, most: int = MOST_BYTES) -> bytes:
    """The whole file. Raises OSError as `open_file`, and for one above `most` bytes."""
    if "\0" in str(path):
        # No name of a file holds one, and Python says so with another exception.
        raise OSError(errno.EINVAL, tr("it is not a regular file"), str(path))
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, tr("it is larger than {size} MiB", size=most >> 20), str(path))
        return file.read(most)


def open_at_once(name: str, flags: int) -> int:
    """An opener for `open`, and as os.open."""
    descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, tr("it is not a regular file"), name)


def append_line(path: Path, line: bytes) -> None:
    """A line of its own: a writer that was killed may have left half a one. Raises OSError."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line + b"\n")


ROWS = ".rows"
"""Rows on disk of a streamed run; built again when absent."""


def bytes_below(folder: Path, *, on_disk: bool = False) -> int:
    """Of all files below `folder`, or what they take of the disk; links are not followed, what goes meanwhile is none."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(root, name))  # noqa: PTH118 - half the time
                total += found.st_blocks * 512 if on_disk else found.st_size
    return total


# A quick fingerprint of a file of any size: all of a small one, evenly spaced blocks of a large one.

BLOCK_BYTES = 65_536
BLOCKS = 16


def sampled_digest(path: Path, blocks: int = BLOCKS) -> str:
    """Hash of the size and of `blocks` blocks of 64 KiB, the first and the last among them; 2 or more.

    A file of at most that size is read whole. A change of a larger one that keeps its size and lies
    wholly between the blocks is not seen. 1 MiB is read at most by default. Raises OSError, also for a pipe.
    """
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0, opener=open_at_once) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}:".encode())
        for offset in _offsets(size, max(2, blocks)):
            digest.update(os.pread(file.fileno(), BLOCK_BYTES, offset))
    return digest.hexdigest()


def _offsets(size: int, blocks: int) -> list[int]:
    if size <= blocks * BLOCK_BYTES:
        return list(range(0, size, BLOCK_BYTES))
    last = size - BLOCK_BYTES
    return [last * number // (blocks - 1) for number in range(blocks)]


# What a path is, where it may not be looked at as well: Path.is_file() raises PermissionError below a closed folder.


def is_file(path: Path) -> bool:
    """False also where that may not be known."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """False also where that may not be known."""
    return os.path.isdir(path)  # noqa: PTH112


def may_be_there(path: Path) -> bool:
    """True also where that may not be known: reading it then says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def at_home(path: Path) -> Path:
    """With "~" and "~name" replaced; as it is where there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
