"""CoreWatch: threads of OpenMP wait awake where the cores are free, and asleep where other processes want them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch
from trainwiz.core.hardware.core_load import CoreLoad, bounds_of_this_process
from trainwiz.core.run.openmp import AWAKE, POLICY, SPINS, WAITING
from trainwiz.core.training.thread_rest import ThreadRest, openmp_libraries

LOOK_S = 0.5
CROWDED, FREE = 0.5, 0.3
"""Cores missing. One that others keep half busy slows threads that wait awake as much as sleeping does."""
FREE_LOOKS = 2


class CoreWatch:
    """Begins asleep. A look every LOOK_S seconds: asleep from one crowded one on, awake after FREE_LOOKS free ones."""

    def __init__(self, load: CoreLoad, threads: int, rest: ThreadRest) -> None:
        self._load = load
        self._threads = threads
        self._rest = rest
        self._free = 0
        rest.hold()

    def look(self) -> None:
        missing = self._load.missing(self._threads)
        self._free = self._free + 1 if missing < FREE else 0
        if missing > CROWDED:
            self._rest.hold()
        elif self._free >= FREE_LOOKS:
            self._rest.release()

    def until(self, over: threading.Event) -> None:
        """Look until `over`."""
        while not over.wait(LOOK_S):
            self.look()
        self._rest.release()


@contextlib.contextmanager
def core_watch() -> Iterator[None]:
    """Keeps one beside the block, where this process was told to wait awake (a run on the CPU) and has GNU's OpenMP."""
    told = os.environ.get(POLICY) == WAITING[POLICY] and os.environ.get(SPINS) == AWAKE
    threads = torch.get_num_threads()
    if not told or threads < 2 or not openmp_libraries():
        yield
        return
    over = threading.Event()
    watch = CoreWatch(CoreLoad(bounds_of_this_process()), threads, ThreadRest())
    beside = threading.Thread(target=watch.until, args=(over,), daemon=True, name="core watch")
    beside.start()
    try:
        yield
    finally:
        over.set()
        beside.join()
