"""PlanMaker: the plans of the wizard, at once by what is known and better ones from a tracer that it keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.device import keys_of
from trainwiz.core.history.store import history_path, load
from trainwiz.core.plan.gather import Gathered
from trainwiz.core.plan.refine import Refiner, RefineTier, Tracer
from trainwiz.core.plan.result import Plan


class OwnTracer(Tracer, Protocol):
    """A tracer that this program starts and ends."""

    def start(self) -> None: ...

    def close(self) -> None: ...


def new_tracer() -> OwnTracer:
    from trainwiz.core.tracing.worker import TraceWorker

    return TraceWorker()


Kept = TypeVar("Kept")


class History(Generic[Kept]):
    """What a file says of a machine; it is read again only when it has changed, since every keystroke asks."""

    def __init__(self, path: Callable[[], Path], load: Callable[[Machine], tuple[Kept, ...]]) -> None:
        self._path = path
        self._load = load
        self._kept: tuple[object, tuple[Kept, ...]] = (None, ())

    def __call__(self, machine: Machine) -> tuple[Kept, ...]:
        try:
            state = self._path().stat()
            stamp = (keys_of(machine), state.st_ino, state.st_mtime_ns, state.st_size)
        except OSError:
            return ()
        if self._kept[0] != stamp:
            self._kept = stamp, self._load(machine)
        return self._kept[1]


class PlanMaker:
    """Used by several threads: one plans while another waits for traces."""

    def __init__(self, tier: RefineTier, tracer: Callable[[], OwnTracer] = new_tracer) -> None:
        """`tracer` makes the process that traces; it is started by the first plan, unless `tier` is "analytic"."""
        self._tier = tier
        self._new_tracer = tracer
        self._history = History(history_path, load)
        self._lock = threading.Lock()
        self._refiner: Refiner | None = None
        self._tracer: OwnTracer | None = None

    def plan(self, gathered: Gathered) -> Plan:
        """The plan by what is known now; starts the tracer, and waits for nothing."""
        return self._warm().plan(gathered)

    def improve(self, gathered: Gathered, on_plan: Callable[[Plan], None], is_cancelled: Callable[[], bool]) -> None:
        """Each better plan as it comes; returns when there is no better one, or soon after it is cancelled or closed."""
        refiner = self._warm()
        if self._tier == "analytic":
            return
        refiner.improve(gathered, on_plan, self._tier, lambda: is_cancelled() or self._refiner is not refiner)

    def close(self) -> None:
        """End the tracer. What is planned later has a new one."""
        with self._lock:
            tracer, self._tracer, self._refiner = self._tracer, None, None
        if tracer is not None:
            tracer.close()

    def _warm(self) -> Refiner:
        with self._lock:
            if self._refiner is None:
                if self._tier != "analytic":
                    self._tracer = self._new_tracer()
                    self._tracer.start()
                self._refiner = Refiner(self._tracer, self._history)
            return self._refiner
