"""What can be asked of one process: working folder, environment, owner, loaded libraries. Nothing raises."""

from __future__ import annotations

import sys
from pathlib import Path


def working_folder(pid: int) -> Path | None:
    """None where it cannot be read: another user's process, or one that has ended."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").readlink()
        except OSError:
            return None
    import psutil

    try:
        return Path(psutil.Process(pid).cwd())
    except (psutil.Error, OSError):
        return None


def environment_of(pid: int) -> dict[str, str]:
    """The variables that the process was started with; empty where they cannot be read."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                pairs = file.read().decode("utf-8", "replace").split("\0")
        except OSError:
            return {}
        return {name: value for name, found, value in (pair.partition("=") for pair in pairs) if found}
    import psutil

    try:
        return dict(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return {}


def maps_any(pid: int, libraries: tuple[str, ...]) -> bool:
    """Whether a shared library with one of these words in its name is loaded; False where that cannot be read."""
    if sys.platform != "linux":
        import psutil

        try:
            return any(word in one.path for one in psutil.Process(pid).memory_maps() for word in libraries)
        except (psutil.Error, OSError, AttributeError):  # macOS tells nobody
            return False
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any(word in line for line in file for word in libraries)
    except OSError:
        return False


def owner_of(pid: int) -> int | None:
    """User id of the process; None when it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
