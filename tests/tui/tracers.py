"""Tracers for tests of the front ends: one with a fixed answer, one that never answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.tracing.request import TraceCache
from trainwiz.core.tracing.worker import TraceWorker

from tests.conftest import REPOSITORY
from tests.tui import fixed_tracer

NO_CACHE = TraceCache(Path(), most=0)
GIB = 1024**3


class Kept(list[TraceWorker]):
    """Makes tracers, and is the list of those that were made."""

    def __init__(self, make: Callable[[], TraceWorker]) -> None:
        super().__init__()
        self._make = make

    def __call__(self) -> TraceWorker:
        self.append(self._make())
        return self[-1]


def fixed_worker(peak_bytes: int) -> TraceWorker:
    """Every trace of it has this peak."""
    variables = [f"FIXED_BYTES={peak_bytes}", f"PYTHONPATH={REPOSITORY}"]
    command = ["env", *variables, sys.executable, fixed_tracer.__file__, str(os.getpid())]
    return TraceWorker(NO_CACHE, command=command)


def hung_worker() -> TraceWorker:
    return TraceWorker(NO_CACHE, command=[sys.executable, "-c", "import time; time.sleep(600)"])
