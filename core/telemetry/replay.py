"""A finished run once more, at any speed."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.lines import JsonLinesTail, TextTail
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.run_source import RunSource
from trainwiz.core.telemetry.snapshot import Action, Snapshot
from trainwiz.core.text import numbers_finite, plain_text

# ReplayClock: which moment of an ended run is shown now, at a chosen speed, with pauses.

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
            "--replay needs a speed above 0, such as 60 or 0.5x (seconds of the run per second), not {text}.",
            text=repr(text),
        )
        raise usage_error("bad_speed", "--replay", message)
    return speed


class ReplayClock:
    """Goes through the spans one after the other; the nights between two attempts are left out.

    `spans` are Unix times, ordered, each (begin, end). `clock` counts seconds.
    """

    def __init__(
        self, spans: Sequence[tuple[float, float]], speed: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spans = tuple(spans)
        self._length_s = sum(end - begin for begin, end in self._spans)
        self._clock = clock
        self._run: tuple[float, float, float] = (0.0, clock(), speed)
        """What was played at a moment of `clock`, and the speed since then, 0 while it pauses: replaced as a whole,
        for the screen pauses it while a look reads it."""
        self._full_speed = speed

    @property
    def speed(self) -> float:
        """Seconds of the run in one second now; 0 while it pauses."""
        return self._run[2]

    @property
    def over(self) -> bool:
        return self._played(self._clock()) >= self._length_s

    def moment(self) -> float:
        """The Unix time of the run that is shown now."""
        left_s = self._played(self._clock())
        for begin, end in self._spans:
            if left_s < end - begin:
                return begin + left_s
            left_s -= end - begin
        return self._spans[-1][1]

    def toggle(self) -> None:
        """Pause, or go on."""
        now = self._clock()
        self._run = self._played(now), now, 0.0 if self.speed else self._full_speed

    def _played(self, now: float) -> float:
        played_s, since, speed = self._run
        return min(self._length_s, played_s + (now - since) * speed)


# The files of an ended run, read as far as they had grown at a moment.

HELD_TEXT = 512 * 1024
"""Of text without a time of its own, the newest that waits for one: a viewer keeps no more."""

_MARK = re.compile(
    r"^(?:=== trainwiz: attempt (?P<attempt>\d{1,9}),|step (?P<step>\d[\d,]{0,23})/[\d,]+\s).*\n",
    re.MULTILINE,
)


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
        return numbers_finite(row.get("time_s"), self._last_time_s) or 0.0


Mark = tuple[int, int | None]
"""The attempt and the step of a line whose moment is known by what else the run wrote."""


class TimedLog(TextTail):
    """Text of train.log up to the newest line whose moment has passed.

    The log carries no times: the begin of an attempt and the lines of logged steps are found again
    in the state and in the metrics. A line between two of those waits for the later one, so that
    nothing is shown before it was written.
    """

    def __init__(self, path: Path, has_passed: Callable[[Mark | None], bool]) -> None:
        """`has_passed` tells whether a mark's moment has come; None stands for the end of the run."""
        super().__init__(path, window_bytes=0)
        self._has_passed = has_passed
        self._attempt = 1
        self._blocks: deque[tuple[str, Mark]] = deque()
        self._open = ""

    def read_new(self) -> str:
        shown = ""
        while True:
            while self._blocks and self._has_passed(self._blocks[0][1]):
                shown += self._blocks.popleft()[0]
            text = "" if self._blocks else super().read_new()
            if not text:
                break
            self._take(self._open + text)
        if not self._blocks and self._has_passed(None):
            shown += self._open
            self._open = ""
        return shown[-HELD_TEXT:]

    def _take(self, text: str) -> None:
        start = 0
        for found in _MARK.finditer(text):
            self._attempt = int(found["attempt"] or self._attempt)
            step = int(found["step"].replace(",", "")) if found["step"] else None
            self._blocks.append((text[start : found.end()], (self._attempt, step)))
            start = found.end()
        self._open = text[start:][-HELD_TEXT:]


REPLAY_ACTIONS: frozenset[Action] = frozenset({"plan", "command"})


class ReplaySource(RunSource):
    """A run folder, played. `clock` counts the viewer's seconds. Not thread-safe but for `toggle`."""

    def __init__(self, folder: RunFolder, speed: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises UsageError for a run that is going on or that carries no times."""
        self._final = read_state(folder)
        self._play = ReplayClock(spans_of(folder, self._final), speed, clock)
        super().__init__(folder, clock=self._play.moment)
        self._log = LogLines(TimedLog(folder.train_log, self._has_passed))

    def _rows_of(self, path: Path, window_bytes: int | None = None) -> JsonLinesTail:
        return TimedRows(path, self._play.moment)

    def toggle(self) -> None:
        """Pause, or go on. Any thread may call it."""
        self._play.toggle()

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        snapshot = super().poll(curves)
        return replace(
            snapshot,
            actions=REPLAY_ACTIONS,
            # The whole file holds what is still to come.
            log_path=snapshot.log_path if self._play.over else None,
            replayed_s=snapshot.time_s,
            replay_speed=0.0 if self._play.over else self._play.speed,
        )

    def _state(self) -> RunState:
        """The state as it was: no end, no checkpointed outcome, no attempt that was still to come."""
        if self._play.over:
            return self._final
        # Whether the training speaks yet is in its metrics.
        self._read_metrics()
        moment = self._play.moment()
        begun = [attempt for attempt in self._final.attempts if attempt.started_s <= moment]
        since_s = begun[-1].started_s if begun else 0.0
        speaks = self._metrics.time_s is not None and self._metrics.time_s >= since_s
        engine = self._final.engine
        return replace(
            self._final,
            status="running" if speaks else "starting",
            attempts=begun,
            ended_s=None,
            exit=None,
            outcome=None,
            notes=[],
            stop=None,
            engine=engine if speaks else {key: engine[key] for key in engine if key.startswith("planned")},
        )

    def _has_passed(self, mark: Mark | None) -> bool:
        if self._play.over:
            return True
        if mark is None:
            return False
        moment = self._play.moment()
        attempt = sum(attempt.started_s <= moment for attempt in self._final.attempts) or 1
        if mark[0] != attempt or mark[1] is None:
            return mark[0] <= attempt
        return (self._metrics.step or 0) >= mark[1]


def spans_of(folder: RunFolder, state: RunState) -> list[tuple[float, float]]:
    """When the run was trained: (begin, end) of each attempt, in Unix time. Raises UsageError, as ReplaySource does."""
    name = plain_text(folder.path.resolve().name)
    if state.is_active:
        message = tr(
            "{name} is {status}: only a run that has ended can be replayed. Monitor it live without --replay.",
            name=name,
            status=tr(state.status),
        )
        raise usage_error("still_running", "--replay", message)
    last_s = state.ended_s or state.heartbeat_s
    begun: list[tuple[float | None, float | None]]
    begun = [(attempt.started_s, attempt.ended_s) for attempt in state.attempts] or [(state.started_s, last_s)]
    followed = [*(start for start, _ in begun[1:]), last_s]
    known = ((start, end or after) for (start, end), after in zip(begun, followed, strict=True))
    spans = [(start, end) for start, end in known if start is not None and end is not None and start < end]
    if not spans:
        message = tr("{name} cannot be replayed: its record does not say when it was trained.", name=name)
        raise usage_error("nothing_to_replay", "--replay", message)
    return spans
