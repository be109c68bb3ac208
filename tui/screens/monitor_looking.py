"""LookingScreen: looks at a target again and again in a thread, and shows each look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, WorkerState
from trainwiz.core.errors import TrainwizError
from trainwiz.core.plain import plain_text

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot
    from trainwiz.core.telemetry.source import Source
    from trainwiz.core.telemetry.target import Target


class LookingScreen(Screen[None]):
    """One look at a time; one that is asked for meanwhile follows it. `clock` gives Unix time in seconds."""

    class Looked(Message, bubble=False):
        """A look at the target is done."""

        def __init__(self, snapshot: Snapshot) -> None:
            super().__init__()
            self.snapshot = snapshot

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LookingScreen.Looked)

    def __init__(self, target: Target, *, interval_s: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.target = target
        self.snapshot: Snapshot | None = None
        self._interval_s = interval_s
        self._clock = clock
        self._source: Source | None = None
        self._looking = False
        self._look_again = False
        self._said = ""

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)
        self.set_interval(self._interval_s, self.look)

    def wanted_curves(self) -> tuple[str, ...]:
        """Names of the metrics whose points the next look should bring."""
        return ()

    def show_look(self, snapshot: Snapshot) -> bool:
        """Show this look; True asks for another one at once."""
        raise NotImplementedError

    def look(self) -> None:
        """Start a look unless one is under way; then another one follows it."""
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        # Not a worker of Textual, whose states are three messages more each time.
        look = asyncio.get_running_loop().run_in_executor(None, self._take_look, self.wanted_curves())
        look.add_done_callback(self._look_is_done)

    def _take_look(self, curves: tuple[str, ...]) -> Snapshot:
        """In a thread."""
        try:
            if self._source is None:
                # Loaded here, after the first frame.
                from trainwiz.core.telemetry.target import open_source

                self._source = open_source(self.target, clock=self._clock)
            snapshot = self._source.poll(curves)
            if not self.is_attached:
                self._source.close()
            return snapshot
        finally:
            self._looking = False

    def _look_is_done(self, look: asyncio.Future[Snapshot]) -> None:
        if look.cancelled():
            return
        error = look.exception()
        if error is None:
            self.post_message(self.Looked(look.result()))
        elif self.is_attached:
            sentence = failure_words(error)
            # A look that fails again and again says it once.
            if sentence != self._said:
                self._said = sentence
                self.notify(plain_text(sentence, 300), severity="error", markup=False)

    def on_unmount(self) -> None:
        # A look that is under way closes the source itself.
        if self._source is not None and not self._looking:
            self._source.close()

    @on(Looked)
    def _show(self, message: Looked) -> None:
        self.snapshot = message.snapshot
        self._said = ""
        again = self.show_look(message.snapshot)
        if again or self._look_again or message.snapshot.behind:
            self._look_again = False
            self.look()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The one place where a failed worker speaks."""
        if event.state == WorkerState.ERROR:
            self.notify(plain_text(failure_words(event.worker.error), 300), severity="error", markup=False)


def failure_words(error: BaseException | None) -> str:
    """What it says for people; of an unexpected one its type too."""
    return str(error) if isinstance(error, TrainwizError) else f"{type(error).__name__}: {error}"
