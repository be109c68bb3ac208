"""TrainerLog: the file that a Trainer's standard output goes to: its last lines and the metrics printed in it."""

from __future__ import annotations

import time
from pathlib import Path

from trainwiz.core.telemetry.log_lines import LogLines
from trainwiz.core.telemetry.scalars import Scalars
from trainwiz.core.telemetry.stdout_metrics import StdoutMetrics
from trainwiz.core.telemetry.tail import TextTail


class TrainerLog:
    """Not thread-safe. Each read costs what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.printed = StdoutMetrics(path)
        self.scalars = Scalars()
        self.lines = LogLines()
        self._text = TextTail(path)
        self._text_resets = 0
        self._printed_resets = 0

    @property
    def behind(self) -> bool:
        return self.printed.behind

    @property
    def problem(self) -> str | None:
        return self._text.problem

    @property
    def written_s(self) -> float | None:
        """Time of the file."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return None

    def read(self, deadline: float, logging_steps: int | None = None) -> bool:
        """Read what is new until time.monotonic() is `deadline`; whether metrics were printed."""
        self._read_lines()
        self.printed.logging_steps = logging_steps
        grew = False
        while True:
            scalars = self.printed.read_new()
            if self.printed.tail.resets != self._printed_resets:
                self._printed_resets = self.printed.tail.resets
                self.scalars = Scalars()
            self.scalars.add_all(scalars)
            grew = grew or bool(scalars)
            if not self.printed.behind or time.monotonic() > deadline:
                return grew

    def _read_lines(self) -> None:
        text = self._text.read_new()
        if self._text.resets != self._text_resets:
            self._text_resets = self._text.resets
            self.lines.clear()
        self.lines.feed(text)
