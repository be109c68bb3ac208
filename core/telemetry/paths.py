"""What a path is, where it may not be looked at as well: Path.is_file() raises PermissionError below a closed folder."""

from __future__ import annotations

import os
from pathlib import Path


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
