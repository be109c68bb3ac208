"""The files of an ended run, read as far as they had grown at a moment."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.numbers import finite
from trainwiz.core.telemetry.tail import ByteTail, JsonLinesTail, TextTail

HELD_LINES = 2_000
"""Of lines without a time of their own, the newest that wait for one: a viewer keeps no more."""

_STEP = re.compile(r"step (\d[\d,]{0,23})/[\d,]+\s+(evaluation)?")
_ATTEMPT = re.compile(r"=== trainwiz: attempt (\d{1,9}),")


class TimedRows(JsonLinesTail):
    """Rows of a JSON-lines file whose `time_s` has come; one without a time goes with the row before it."""

    def __init__(self, path: Path, moment: Callable[[], float]) -> None:
        super().__init__(path)
        self._moment = moment
        self._waiting: deque[dict[str, Any]] = deque()
        self._last_time_s = 0.0
        self._more = False
        """Whether the file goes on after the rows that wait."""

    def read_new(self) -> list[dict[str, Any]]:
        """Rows up to the present moment, as many as one read holds; call again while `behind` is true."""
        if not self._waiting:
            self._waiting.extend(super().read_new())
            self._more = self.behind
        moment, due = self._moment(), []
        while self._waiting and self._time_of(self._waiting[0]) <= moment:
            row = self._waiting.popleft()
            self._last_time_s = self._time_of(row)
            due.append(row)
        self.behind = self._more and not self._waiting
        return due

    def _time_of(self, row: Mapping[str, Any]) -> float:
        return finite(row.get("time_s"), self._last_time_s) or 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A line whose moment is known by what else the run wrote."""

    attempt: int
    step: int | None = None
    evaluation: bool = False


class TimedLog(TextTail):
    """Text of train.log up to the newest line whose moment has passed.

    The log carries no times: the begin of an attempt and the lines of logged steps are found again
    in the state and in the metrics. A line between two of those waits for the later one, so that
    nothing is shown before it was written.
    """

    def __init__(self, path: Path, has_passed: Callable[[Mark | None], bool]) -> None:
        """`has_passed` tells whether a mark's moment has come; None stands for the end of the run."""
        super().__init__(path)
        self._bytes = ByteTail(path)
        self._has_passed = has_passed
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._half = ""
        self._attempt = 1
        self._blocks: deque[tuple[list[str], Mark]] = deque()
        self._open: deque[str] = deque(maxlen=HELD_LINES)

    def read_new(self) -> str:
        """What became visible since the last call."""
        shown = self._pass_blocks()
        while not self._blocks:
            data = self._bytes.read_bytes()
            self.problem = self._bytes.problem
            if not data:
                break
            self._take(self._text.decode(data))
            shown += self._pass_blocks()
        if not self._blocks and self._has_passed(None):
            shown += [*self._open, self._half]
            self._open.clear()
            self._half = ""
        return "".join(shown)

    def _pass_blocks(self) -> list[str]:
        shown: list[str] = []
        while self._blocks and self._has_passed(self._blocks[0][1]):
            shown += self._blocks.popleft()[0]
        return shown[-HELD_LINES:]

    def _take(self, text: str) -> None:
        *lines, self._half = (self._half + text).split("\n")
        for line in lines:
            self._open.append(line + "\n")
            mark = self._mark(line)
            if mark is not None:
                self._blocks.append(([*self._open], mark))
                self._open.clear()

    def _mark(self, line: str) -> Mark | None:
        attempt = _ATTEMPT.match(line)
        if attempt:
            self._attempt = int(attempt[1])
            return Mark(self._attempt)
        step = _STEP.match(line)
        if step:
            return Mark(self._attempt, int(step[1].replace(",", "")), evaluation=step[2] is not None)
        return None
