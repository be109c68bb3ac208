"""ReplayClock: which moment of an ended run is shown now, at a chosen speed, with pauses."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr

DEFAULT_SPEED = 60.0
FASTEST = 1e9


def parse_speed(text: str) -> float:
    """ "60", "60x" or "0.5" as seconds of the run in one second. Raises UsageError for anything else."""
    try:
        speed = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 0 < speed <= FASTEST:
        message = tr(
            "--replay takes a speed above 0, such as 60 or 0.5x (seconds of the run in one second), not {text}.",
            text=repr(text),
        )
        raise usage_error("bad_speed", "--replay", message)
    return speed


class ReplayClock:
    """Goes through the spans one after the other; the nights between two attempts are left out.

    `spans` are Unix times, ordered, each (begin, end). `clock` counts seconds. Safe between threads:
    the screen pauses it while a look reads it.
    """

    def __init__(
        self, spans: Sequence[tuple[float, float]], speed: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spans = tuple(spans)
        self._length_s = sum(end - begin for begin, end in self._spans)
        self._speed = speed
        self._clock = clock
        self._lock = threading.Lock()
        self._played_s = 0.0
        self._since: float | None = clock()

    @property
    def speed(self) -> float:
        """Seconds of the run in one second now; 0 while it pauses."""
        with self._lock:
            return 0.0 if self._since is None else self._speed

    @property
    def over(self) -> bool:
        """Whether the end of the run is reached."""
        return self._played() >= self._length_s

    def moment(self) -> float:
        """The Unix time of the run that is shown now."""
        left_s = self._played()
        for begin, end in self._spans:
            if left_s < end - begin:
                return begin + left_s
            left_s -= end - begin
        return self._spans[-1][1]

    def toggle(self) -> None:
        """Pause, or go on."""
        with self._lock:
            now = self._clock()
            self._played_s = self._played_at(now)
            self._since = now if self._since is None else None

    def _played(self) -> float:
        with self._lock:
            return self._played_at(self._clock())

    def _played_at(self, now: float) -> float:
        running_s = 0.0 if self._since is None else (now - self._since) * self._speed
        return min(self._length_s, self._played_s + running_s)
