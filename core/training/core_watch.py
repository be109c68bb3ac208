"""CoreWatch: threads of OpenMP wait awake where the cores are free, and asleep where other processes want them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

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

    def __init__(
        self, load: CoreLoad, threads: int, rest: ThreadRest, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._threads = threads
        self._rest = rest
        self._clock = clock
        self._lock = threading.Lock()
        self._pauses = False
        self._since_s = clock()
        self._free = 0
        rest.hold()

    def look(self) -> None:
        with self._lock:
            # Ticks of the kernel's books are 10 ms of each core: a short time says nothing.
            if self._pauses or self._clock() < self._since_s + LOOK_S / 2:
                return
            self._since_s = self._clock()
            missing = self._load.missing(self._threads)
            self._free = self._free + 1 if missing < FREE else 0
            if missing > CROWDED:
                self._rest.hold()
            elif self._free >= FREE_LOOKS:
                self._rest.release()

    def pause(self) -> None:
        """This process stands still for others, which it does not run beside: no look until `go_on`."""
        with self._lock:
            self._pauses = True

    def go_on(self) -> None:
        with self._lock:
            self._pauses = False
            self._since_s = self._clock()
            self._load.missing(self._threads)

    def until(self, over: threading.Event) -> None:
        """Look until `over`."""
        while not over.wait(LOOK_S):
            self.look()
        self._rest.release()


@contextlib.contextmanager
def core_watch() -> Iterator[CoreWatch | None]:
    """One beside the block, where this process was told to wait awake (a run on the CPU) and has GNU's OpenMP."""
    told = os.environ.get(POLICY) == WAITING[POLICY] and os.environ.get(SPINS) == AWAKE
    threads = torch.get_num_threads()
    if not told or threads < 2 or not openmp_libraries():
        yield None
        return
    over = threading.Event()
    watch = CoreWatch(CoreLoad(bounds_of_this_process()), threads, ThreadRest())
    beside = threading.Thread(target=watch.until, args=(over,), daemon=True, name="core watch")
    beside.start()
    try:
        yield watch
    finally:
        over.set()
        beside.join()
