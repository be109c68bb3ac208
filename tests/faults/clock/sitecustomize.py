"""A wall clock that jumps: added to PYTHONPATH, it moves time.time() by the seconds that a file says.

Every Python process of the trial reads the same file, so that they jump together, as on one machine.
The monotonic clock is left alone: the kernel's does not jump either.
"""

import os
import time

_path = os.environ.get("FAULT_CLOCK_FILE")
_time, _time_ns = time.time, time.time_ns


def _offset_s() -> float:
    try:
        with open(_path, encoding="ascii") as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


if _path:
    time.time = lambda: _time() + _offset_s()
    time.time_ns = lambda: _time_ns() + int(_offset_s() * 1e9)
