"""The processes below one, asked of the kernel."""

from contextlib import suppress

import psutil


def descendants(root: int) -> list[int]:
    """Pids of all descendants of `root`, without it; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [below.pid for below in psutil.Process(root).children(recursive=True)]
    return []
