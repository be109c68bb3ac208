"""Python reads this file first in every child of a test: the suite adds its folder to PYTHONPATH (tests/conftest.py).

FAULT_CLOCK_FILE: a wall clock that jumps; time.time() is moved by the seconds that the file says. Every Python process of the
trial reads the same file, so that they jump together, as on one machine. The monotonic clock is left alone: the kernel's does
not jump either.
TRAINWIZ_FAULTS: a training process fails on purpose (tools/faults/striking.py).
TRAINWIZ_TEST_LOOK: a training process notes its weights (tests/engines/look.py).
"""

import os
import pathlib
import sys
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

_looks = os.environ.get("TRAINWIZ_TEST_LOOK") and "trainwiz.core.training" in sys.orig_argv
_launches = "accelerate.commands.launch" in sys.orig_argv
if (_looks or os.environ.get("TRAINWIZ_FAULTS")) and not _launches:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    if os.environ.get("TRAINWIZ_FAULTS"):
        from tools.faults.striking import strike_when_loaded

        # Before the look, which loads the trainer.
        strike_when_loaded()
    if _looks:
        from tests.engines.look import look

        look()
