"""PlanMaker: the plans of the wizard, at once by what is known and better ones from a tracer that it keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError

if TYPE_CHECKING:
    from textual.timer import Timer
    from trainwiz.core.errors import Finding, Remedy
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.gather import Gathered
    from trainwiz.core.plan.refine import Refiner, RefineTier
    from trainwiz.core.plan.result import Plan
    from trainwiz.core.tracing.worker import TraceWorker
    from trainwiz.tui.screens.plan import PlanScreen
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.screens.plan_state import Reading


class Newest:
    """Thread-safe. One thread at most takes from it; it ends when there is nothing more to take."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: PlanRequest | None = None
        self._newest: PlanRequest | None = None
        self._is_worked_on = False
        self._closed = False

    def put(self, request: PlanRequest) -> bool:
        """Want this request and none before it; True where a thread has to be started for it."""
        with self._lock:
            self._waiting = self._newest = request
            must_start = not self._is_worked_on and not self._closed
            self._is_worked_on = self._is_worked_on or must_start
            return must_start

    def take(self) -> PlanRequest | None:
        """The request to work on; None: the thread ends."""
        with self._lock:
            request, self._waiting = self._waiting, None
            if request is None or self._closed:
                self._is_worked_on = False
                return None
            return request

    def work_through(self, work: Callable[[PlanRequest], None]) -> None:
        """Work on the newest request until there is none; a thread that breaks off may be followed by another."""
        try:
            while (request := self.take()) is not None:
                work(request)
        except BaseException:
            with self._lock:
                self._is_worked_on = False
            raise

    def stale(self) -> None:
        """Nothing that was put is wanted any more."""
        with self._lock:
            self._waiting = self._newest = None

    def is_stale(self, request: PlanRequest) -> bool:
        return self._closed or request is not self._newest

    def close(self) -> None:
        with self._lock:
            self._closed, self._waiting = True, None


BURST_S = 0.1
"""The first of some fast keys is planned at once, and then at most one in this time."""
TYPING_PAUSE_S = 0.032
"""A key that nothing follows for so long is the last one: it is planned now. Held keys repeat every 30 ms."""
SEEN_AS_SLOW_S = 0.15


class PlanThreads:
    """Threads of the wizard: one plans by what is known, one waits for better figures, each of the newest request; one
    measures this machine."""

    def __init__(self, screen: PlanScreen, reader: PlanReader | None, tier: RefineTier) -> None:
        self.reader = reader
        self._tier: RefineTier = tier
        self._screen = screen
        self._wanted, self._better = Newest(), Newest()
        self._pause: Timer | None = None
        self._slow: Timer | None = None
        self._planned_at = -BURST_S

    def change(self, request: PlanRequest, *, typed: bool = False) -> None:
        """Plan for this request and no other: at once, or as fast typing allows."""
        if self._pause is not None:
            self._pause.stop()
            self._pause = None
        now = time.monotonic()
        if typed and now - self._planned_at < BURST_S:
            # The files of a plan that nobody will see are not written.
            self._wanted.stale()
            wait = min(TYPING_PAUSE_S, self._planned_at + BURST_S - now)
            self._pause = self._screen.set_timer(wait, partial(self._read, request))
        else:
            self._read(request)

    def _read(self, request: PlanRequest) -> None:
        """Read what the request needs. What is on the screen stays until then."""
        self._planned_at = time.monotonic()
        if self._slow is not None:
            self._slow.stop()
        self._slow = self._screen.set_timer(SEEN_AS_SLOW_S, self._screen.note_slow)
        self._better.stale()
        if self._wanted.put(request):
            self._start(self._work, "plan")

    def _start(self, work: Callable[[], None], group: str) -> None:
        self._screen.run_worker(work, thread=True, group=group, exit_on_error=False)

    def improve(self, request: PlanRequest) -> None:
        """Better figures for what was read last; a change of the request ends the wait."""
        if self._better.put(request):
            self._start(self._work_better, "better")

    def close(self) -> None:
        self._wanted.close()
        self._better.close()
        self.close_reader()

    def close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def _work(self) -> None:
        if self.reader is None:
            from trainwiz.tui.screens.plan_reader import PlanReader

            self.reader = PlanReader(tier=self._tier)
        reader = self.reader

        def plan(request: PlanRequest) -> None:
            for reading in reader.read(request, partial(self._wanted.is_stale, request)):
                self._screen.call_later(self._screen.take_reading, request, reading)

        self._wanted.work_through(plan)

    def _work_better(self) -> None:
        reader = self.reader
        assert reader is not None

        def improve(request: PlanRequest) -> None:
            def post(better: Reading) -> None:
                self._screen.call_later(self._screen.take_reading, request, better, is_better=True)

            reader.improve(request, partial(self._better.is_stale, request), post)

        self._better.work_through(improve)
        # Now the tracer rests.
        self._start(self._measure, "rates")

    def _measure(self) -> None:
        assert self.reader is not None
        try:
            if self.reader.measure():
                self._screen.call_later(self._screen.plan_again)
        except TrainwizError as error:
            self._screen.call_later(self._screen.notify, error.findings[0].message, markup=False)


# What the remedies of a plan would bring: each is planned like any other change, and told before and after.

MAX_REMEDIES = 9
"""As many as there are digits."""


def numbered_remedies(findings: tuple[Finding, ...]) -> list[Remedy]:
    """The remedies that a digit applies: number 1 is the first of the list. At most nine."""
    return [remedy for finding in findings for remedy in finding.remedies if remedy.is_taken][:MAX_REMEDIES]


def effect_key(changes: Mapping[str, Any]) -> str:
    """Equal for equal changes."""
    import json  # not for the first frame

    return json.dumps(changes, sort_keys=True, default=str)


def new_tracer() -> TraceWorker:
    from trainwiz.core.tracing.worker import TraceWorker

    return TraceWorker()


Kept = TypeVar("Kept")


class History(Generic[Kept]):
    """What a file says of a machine; it is read again only when it has changed, since every keystroke asks."""

    def __init__(self, path: Path, load: Callable[[Machine], tuple[Kept, ...]]) -> None:
        self._path = path
        self._load = load
        self._kept: tuple[object, tuple[Kept, ...]] = (None, ())

    def __call__(self, machine: Machine) -> tuple[Kept, ...]:
        from trainwiz.core.history.measurement import keys_of

        try:
            state = self._path.stat()
        except OSError:
            return ()
        stamp = keys_of(machine), state.st_ino, state.st_mtime_ns, state.st_size
        if self._kept[0] != stamp:
            self._kept = stamp, self._load(machine)
        return self._kept[1]


class PlanMaker:
    """Used by several threads: one plans while another waits for traces."""

    def __init__(self, tier: RefineTier, tracer: Callable[[], TraceWorker] = new_tracer) -> None:
        """`tracer` makes the process that traces; it is started by the first plan, unless `tier` is "analytic"."""
        from trainwiz.core.history.measurement import history_path, load
        from trainwiz.core.history.rates import kept_rates, rates_path

        self._tier = tier
        self._new_tracer = tracer
        self._history = History(history_path(), load)
        self._rates = History(rates_path(), kept_rates)
        self._tried: set[object] = set()
        """Devices that were measured, or could not be."""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._refiner: Refiner | None = None
        self._tracer: TraceWorker | None = None

    def plan(self, gathered: Gathered) -> Plan:
        """The plan by what is known now; starts the tracer, and waits for nothing."""
        return self._warm().plan(gathered)

    def improve(self, gathered: Gathered, on_plan: Callable[[Plan], None], is_cancelled: Callable[[], bool]) -> None:
        """Each better plan as it comes; returns when there is no better one, or soon after it is cancelled or closed."""
        refiner = self._warm()
        if self._tier == "analytic":
            return
        refiner.improve(gathered, on_plan, self._tier, lambda: is_cancelled() or self._refiner is not refiner)

    def measure(self, plan: Plan) -> bool:
        """Measure and keep the rates of the plan's devices, where there are none: True where there are now.

        It takes seconds, and ends soon after `close`: then the cores and the card are a training's. Raises CannotRunError
        with the reason, once for each device.
        """
        from trainwiz.core.history.measurement import device_key
        from trainwiz.core.history.rates import BACKGROUND_NICENESS, keep_rates, measure_rates

        device, gpus, threads = plan.devices.device, plan.devices.gpus, plan.config.engine.cpu_threads
        place = device_key(plan.machine, device, gpus), threads if device == "cpu" else None
        here = not plan.machine.hypothetical and plan.machine.libraries.has("torch") and place[0] is not None
        with self._lock:
            if self._tier == "analytic" or not here or plan.evidence.rates or place in self._tried:
                return False
            self._tried.add(place)
        closed = self._closed.is_set
        try:
            rates = measure_rates(
                plan.machine, device, gpus, threads, niceness=BACKGROUND_NICENESS, is_cancelled=closed
            )
            keep_rates(rates)
        except (TrainwizError, OSError) as error:
            if closed() or isinstance(error, OSError):
                return False
            raise
        return True

    def close(self) -> None:
        """End the tracer and the measuring. What is planned later has a new tracer."""
        self._closed.set()
        with self._lock:
            tracer, self._tracer, self._refiner = self._tracer, None, None
        if tracer is not None:
            tracer.close()

    def _warm(self) -> Refiner:
        from trainwiz.core.plan.refine import Refiner

        with self._lock:
            if self._refiner is None:
                if self._tier != "analytic":
                    self._tracer = self._new_tracer()
                    self._tracer.start()
                self._refiner = Refiner(self._tracer, self._history, self._rates)
            return self._refiner
