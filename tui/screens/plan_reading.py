"""PlanReading: how the plan screen keeps its plan up to date: readings come from a thread, and one place takes them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message
from textual.timer import Timer
from textual.worker import get_current_worker
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.screens.plan_layout import PlanLayout
from trainwiz.tui.screens.plan_state import PlanState, Reading

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier
    from trainwiz.tui.screens.plan_reader import PlanReader

FIRST_FRAME_S = 0.05
TYPING_PAUSE_S = 0.12
SEEN_AS_SLOW_S = 0.15


class PlanReading(PlanLayout):
    """Plans in a thread at every change, and takes better plans of the same request as they come."""

    class Read(Message):
        """A worker read something for a request."""

        def __init__(self, request: PlanRequest, reading: Reading) -> None:
            super().__init__()
            self.request = request
            self.reading = reading

    def __init__(self, state: PlanState, reader: PlanReader | None, tier: RefineTier) -> None:
        super().__init__(state)
        self._reader = reader
        self._tier: RefineTier = tier
        self._pause: Timer | None = None
        self._slow: Timer | None = None

    def on_mount(self) -> None:
        # A pause, so that the imports of the reader do not hold up the first frame on its way to the terminal.
        self.call_after_refresh(self.set_timer, FIRST_FRAME_S, self._read_world)

    def on_unmount(self) -> None:
        self._close_reader()

    def _replace(self, state: PlanState) -> None:
        """The one place where the state changes."""
        if state.request is not self.state.request:
            state = replace(state, updating=True, problem="", wanted_start="")
        self.state = state
        self._draw()

    async def _taken(self) -> None:
        """Called after a reading was taken."""

    def _change_request(self, request: PlanRequest, *, pause: bool = False) -> None:
        """Plan for another request, at once or after a pause in the typing."""
        if self._pause is not None:
            self._pause.stop()
            self._pause = None
        self._replace(replace(self.state, request=request))
        if pause:
            self._pause = self.set_timer(TYPING_PAUSE_S, self._read_world)
        else:
            self._read_world()

    def _read_world(self) -> None:
        """Read what the request needs. What is on the screen stays until then."""
        if self._slow is not None:
            self._slow.stop()
        self._slow = self.set_timer(SEEN_AS_SLOW_S, self._note_slow)
        self.run_worker(
            partial(self._work, self.state.request), thread=True, exclusive=True, group="plan", exit_on_error=False
        )

    def _note_slow(self) -> None:
        if self.state.updating:
            self._replace(replace(self.state, slow=True))

    def _work(self, request: PlanRequest) -> None:
        """In a thread: first the plan by what is known, then better ones. A change of the request cancels it."""
        if self._reader is None:
            from trainwiz.tui.screens.plan_reader import PlanReader

            self._reader = PlanReader(tier=self._tier)
        reader, worker = self._reader, get_current_worker()

        def post(reading: Reading) -> None:
            self.post_message(self.Read(request, reading))

        for reading in reader.read(request, lambda: worker.is_cancelled):
            post(reading)
        reader.improve(request, lambda: worker.is_cancelled, post)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @on(Read)
    async def _take(self, event: Read) -> None:
        state, reading = self.state, event.reading
        if event.request is not state.request or state.busy:
            return
        if reading.plan is None:
            reading = replace(reading, plan=state.plan)
        done = not reading.waits_for
        self._replace(replace(state, reading=reading, updating=not done, slow=state.slow and not done))
        await self._taken()
