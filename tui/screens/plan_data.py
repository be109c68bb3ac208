"""DataReadings: what is known of each data source. Each is read once, in a thread of its own that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainwiz.core.config import RunConfig
from trainwiz.core.plan.gather import DataAnswer

LOOK_EVERY_S = 0.02


class _Reading(threading.Thread):
    """Reads one source."""

    def __init__(self, read: Callable[[RunConfig], DataAnswer], config: RunConfig) -> None:
        super().__init__(name="trainwiz-data", daemon=True)
        self._read = read
        self._config = config
        self.answer: DataAnswer = (None, ())
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = self._read(self._config)
        except Exception as error:  # noqa: BLE001 - said in the thread that asks
            self.error = error


class DataReadings:
    """A reading that is no longer waited for goes on, and is there when its source is wanted again."""

    def __init__(self, read: Callable[[RunConfig], DataAnswer]) -> None:
        self._read = read
        self._known: dict[str, DataAnswer] = {}
        self._running: dict[str, _Reading] = {}

    def known(self, key: str) -> DataAnswer | None:
        return self._known.get(key)

    def wait(self, key: str, config: RunConfig, is_cancelled: Callable[[], bool]) -> DataAnswer | None:
        """The answer about the source of `config`, read now where it is not known; None when cancelled.

        Raises what the reading raised. Only one thread may call this at a time.
        """
        if key in self._known:
            return self._known[key]
        reading = self._running.get(key)
        if reading is None:
            reading = self._running[key] = _Reading(self._read, config)
            reading.start()
        while reading.is_alive():
            if is_cancelled():
                return None
            reading.join(LOOK_EVERY_S)
        del self._running[key]
        if reading.error is not None:
            raise reading.error
        self._known[key] = reading.answer
        return reading.answer
