"""PlanReading: how the plan screen keeps its plan up to date: readings come from a thread, and one place takes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message
from textual.timer import Timer
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.screens.plan_layout import PlanLayout
from trainwiz.tui.screens.plan_queue import Newest
from trainwiz.tui.screens.plan_state import PlanState, Reading, is_ready, lacks_model

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.screens.plan_reader import PlanReader

FIRST_FRAME_S = 0.05
BURST_S = 0.1
"""The first of some fast keys is planned at once, and then at most one in this time."""
TYPING_PAUSE_S = 0.032
"""A key that nothing follows for so long is the last one: it is planned now. Held keys repeat every 30 ms."""
SEEN_AS_SLOW_S = 0.15
DATED_EVERY_S = 10.0
"""How often it is seen to that "done" and the folder's name are of this minute."""


class PlanReading(PlanLayout):
    """Plans in a thread at every change, and takes better plans of the same request as they come."""

    class Read(Message):
        """A worker read something for a request."""

        def __init__(self, request: PlanRequest, reading: Reading, *, is_better: bool = False) -> None:
            super().__init__()
            self.request = request
            self.reading = reading
            self.is_better = is_better
            """The same plan again, with better figures."""

    def __init__(self, state: PlanState, reader: PlanReader | None, tier: RefineTier) -> None:
        super().__init__(state)
        self._reader = reader
        self._tier: RefineTier = tier
        self._wanted, self._better = Newest(), Newest()
        self._pause: Timer | None = None
        self._planned_at = -BURST_S
        self._slow: Timer | None = None

    @property
    def reader(self) -> PlanReader | None:
        """What reads the world; None before the first frame is drawn."""
        return self._reader

    async def on_mount(self) -> None:
        # A pause, so that the imports of the reader do not hold up the first frame on its way to the terminal.
        self.call_after_refresh(self.set_timer, FIRST_FRAME_S, self._begin)
        self.set_interval(DATED_EVERY_S, self._date)

    async def _begin(self) -> None:
        self._read_world()
        await self.complete_first_step()

    def _date(self) -> None:
        """A plan that stands here for a while is for a start now, not for one when it was made."""
        state = self.state
        if self._reader is None or state.busy or not is_ready(state) or state.reading.findings:
            return
        reading = self._reader.dated(state.request, state.reading)
        if reading is not state.reading:
            self._replace(replace(state, reading=reading))

    def on_unmount(self) -> None:
        self._wanted.close()
        self._better.close()
        self._close_reader()

    def _replace(self, state: PlanState) -> None:
        """The one place where the state changes."""
        if state.request is not self.state.request:
            state = replace(state, updating=True, problem="", wanted_start="")
        self.state = state
        self._draw()

    async def _taken(self) -> None:
        """Called after a reading was taken."""

    def _change_request(self, request: PlanRequest, *, typed: bool = False) -> None:
        """Plan for another request: at once, or as fast typing allows."""
        self._replace(replace(self.state, request=request))
        if self._pause is not None:
            self._pause.stop()
            self._pause = None
        now = time.monotonic()
        if typed and now - self._planned_at < BURST_S:
            self._pause = self.set_timer(min(TYPING_PAUSE_S, self._planned_at + BURST_S - now), self._read_world)
        else:
            self._read_world()

    def _read_world(self) -> None:
        """Read what the request needs. What is on the screen stays until then."""
        self._planned_at = time.monotonic()
        if self._slow is not None:
            self._slow.stop()
        self._slow = self.set_timer(SEEN_AS_SLOW_S, self._note_slow)
        self._better.stale()
        if self._wanted.put(self.state.request):
            self.run_worker(self._work, thread=True, group="plan", exit_on_error=False)

    def _note_slow(self) -> None:
        if self.state.updating:
            self._replace(replace(self.state, slow=True))

    def _work(self) -> None:
        """In a thread: the plan by what is known, for the newest request, until there is no newer one."""
        if self._reader is None:
            from trainwiz.tui.screens.plan_reader import PlanReader

            self._reader = PlanReader(tier=self._tier)
        reader = self._reader

        def plan(request: PlanRequest) -> None:
            for reading in reader.read(request, lambda: self._wanted.is_stale(request)):
                self.post_message(self.Read(request, reading))

        self._work_through(self._wanted, plan)

    def _work_better(self) -> None:
        """In a thread: better figures, which wait for another process; a change of the request ends the wait."""
        reader = self._reader
        assert reader is not None

        def improve(request: PlanRequest) -> None:
            def post(reading: Reading) -> None:
                self.post_message(self.Read(request, reading, is_better=True))

            reader.improve(request, lambda: self._better.is_stale(request), post)

        self._work_through(self._better, improve)

    @staticmethod
    def _work_through(wanted: Newest, work: Callable[[PlanRequest], None]) -> None:
        try:
            while (request := wanted.take()) is not None:
                work(request)
        except BaseException:
            wanted.drop()
            raise

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @on(Read)
    async def _take(self, event: Read) -> None:
        state, reading = self.state, event.reading
        if event.request is not state.request or state.busy:
            return
        if reading.plan is None and not lacks_model(state.request):
            reading = replace(reading, plan=state.plan)
        done = not reading.waits_for
        self._replace(replace(state, reading=reading, updating=not done, slow=state.slow and not done))
        if done and not event.is_better and self._better.put(event.request):
            self.run_worker(self._work_better, thread=True, group="better", exit_on_error=False)
        await self._taken()
