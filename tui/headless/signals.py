"""StopSignals: what the user's signals mean while a run is followed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None


class StopSignals:
    """Counts instead of interrupting: the follower acts on them between two readings.

    SIGINT (Ctrl-C) and SIGTERM ask for a stop: once with a checkpoint, twice at once. SIGHUP (the
    terminal is gone) asks for the stop with a checkpoint, and nobody is left to be told.
    """

    def __init__(self) -> None:
        self.stops = 0
        self.hung_up = False
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._stop)
        hang_up = getattr(signal, "SIGHUP", None)
        # nohup sets it to be ignored, and that is what the user wants then.
        if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
            self._before[hang_up] = signal.signal(hang_up, self._hang_up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        self.hung_up = True
