"""A stop that keeps the work: the first signal asks for a checkpoint, a later second one ends at once."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from types import FrameType

SAME_REQUEST_S = 3.0
"""A supervisor and torchrun may both pass on the same stop; a signal within this time is no second one."""


@dataclass(slots=True)
class StopRequest:
    """Whether this process was asked to stop (SIGTERM or SIGINT)."""

    asked_at: float | None = None

    @classmethod
    def install(cls) -> StopRequest:
        request = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._handle)
        return request

    @property
    def requested(self) -> bool:
        return self.asked_at is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked_at is None:
            self.asked_at = now
        elif now - self.asked_at > SAME_REQUEST_S:
            os._exit(128 + number)
