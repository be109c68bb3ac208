"""The keeper's own log (supervisor.log is its stderr): never a reason to fail."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback


def log(text: str) -> None:
    """One line with its time. A full disk loses the line, not the keeper."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()


def log_exception() -> None:
    """The traceback of the exception that is being handled."""
    log(traceback.format_exc().rstrip())
