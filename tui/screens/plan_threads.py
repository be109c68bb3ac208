"""PlanThreads: the threads of the wizard that read, refine and measure; of the newest request, one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError

if TYPE_CHECKING:
    from textual.timer import Timer
    from trainwiz.core.plan.refine import RefineTier
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

    def put(self, request: PlanRequest | None) -> bool:
        """Want this request (None: nothing) and none before it; True where a thread has to be started for it."""
        with self._lock:
            self._waiting = self._newest = request
            must_start = request is not None and not self._is_worked_on
            self._is_worked_on = self._is_worked_on or must_start
            return must_start

    def _take(self) -> PlanRequest | None:
        with self._lock:
            request, self._waiting = self._waiting, None
            self._is_worked_on = request is not None
            return request

    def work_through(self, work: Callable[[PlanRequest], None]) -> None:
        """Work on the newest request until there is none; a thread that breaks off may be followed by another."""
        try:
            while (request := self._take()) is not None:
                work(request)
        except BaseException:
            with self._lock:
                self._is_worked_on = False
            raise

    def is_stale(self, request: PlanRequest) -> bool:
        return request is not self._newest


BURST_S = 0.1
"""The first of some fast keys is planned at once, and then at most one in this time."""
TYPING_PAUSE_S = 0.032
"""A key that nothing follows for so long is the last one: it is planned now. Held keys repeat every 30 ms."""
SEEN_AS_SLOW_S = 0.15


class PlanThreads:
    """One thread plans by what is known, one waits for better figures; one measures this machine."""

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
            self._wanted.put(None)
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
        self._better.put(None)
        if self._wanted.put(request):
            self._start(self._work, "plan")

    def _start(self, work: Callable[[], None], group: str) -> None:
        self._screen.run_worker(work, thread=True, group=group, exit_on_error=False)

    def improve(self, request: PlanRequest) -> None:
        """Better figures for what was read last; a change of the request ends the wait."""
        if self._better.put(request):
            self._start(self._work_better, "better")

    def close(self) -> None:
        self._wanted.put(None)
        self._better.put(None)
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
