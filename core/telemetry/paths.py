"""What a path is, where it may not be looked at as well: Path.is_file() raises PermissionError below a closed folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from trainwiz.core.language import tr


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


def open_at_once(name: str, flags: int) -> int:
    """An opener for `open`: of a pipe or device, whose opening or reading could wait for ever, it raises OSError."""
    descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    if is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, tr("it is no regular file"), name)
