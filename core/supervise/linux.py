"""The two process controls of Linux that keep a tree together. Elsewhere they do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# Looked up once: a forked child must not ask the dynamic loader, whose lock another thread of its
# parent may have held at the fork; nobody would ever release it there.
_LIBC_PRCTL = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def _prctl(option: int, argument: int) -> bool:
    return _LIBC_PRCTL is not None and _LIBC_PRCTL(option, argument, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """Orphaned descendants become children of this process, not of init. False where there is no such thing."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(expected_parent: int | None = None) -> None:
    """SIGKILL for this process as soon as the thread that made it ends.

    With `expected_parent` (pid) it ends at once when that parent is gone already, for then the
    signal would never come. An exec keeps the setting; a fork does not.
    """
    if not _prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        return
    if expected_parent is not None and os.getppid() != expected_parent:
        os.kill(os.getpid(), signal.SIGKILL)
