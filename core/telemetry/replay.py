"""ReplaySource: an ended run as a monitor would have seen it, faster; what lies ahead is not shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.numbers import finite
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunState, read_state
from trainwiz.core.small_file import open_file
from trainwiz.core.telemetry.recorded_advice import ADVICE_JSONL, AdviceFile
from trainwiz.core.telemetry.replay_clock import ReplayClock
from trainwiz.core.telemetry.replayed_files import Mark, TimedLog, TimedRows
from trainwiz.core.telemetry.run_source import MetricsFile, RunSource
from trainwiz.core.telemetry.snapshot import Action, Snapshot

EDGE_BYTES = 64 * 1024
REPLAY_ACTIONS: frozenset[Action] = frozenset({"plan", "command"})


class ReplaySource(RunSource):
    """A run folder, played. `clock` counts the viewer's seconds. Not thread-safe but for `toggle`."""

    enters_near_the_end = False

    def __init__(self, folder: RunFolder, speed: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises UsageError for a run that is going on or that carries no times."""
        self._final = read_state(folder)
        self._play = ReplayClock(spans_of(folder, self._final), speed, clock)
        super().__init__(folder, clock=self._play.moment)
        self._all_metrics = MetricsFile(TimedRows(folder.metrics_jsonl, self._play.moment))
        self._system_tail = TimedRows(folder.system_jsonl, self._play.moment)
        self._advice_file = AdviceFile(TimedRows(folder.file(ADVICE_JSONL), self._play.moment))
        self._log_tail = TimedLog(folder.train_log, self._has_passed)

    def toggle(self) -> None:
        """Pause, or go on. Any thread may call it."""
        self._play.toggle()

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look at the present moment of the replay."""
        snapshot = super().poll(curves)
        return replace(
            snapshot,
            actions=REPLAY_ACTIONS,
            # The whole file holds what is still to come.
            log_path=snapshot.log_path if self._play.over else None,
            replayed_s=snapshot.time_s,
            replay_speed=0.0 if self._play.over else self._play.speed,
        )

    def _newest_attempt(self, state: RunState) -> Attempt | None:
        """As it was: recovery.json may tell of later ones."""
        return state.attempts[-1] if state.attempts else None

    def _state(self) -> RunState:
        """The state as it was: no end, no checkpointed outcome, no attempt that was still to come."""
        if self._play.over:
            return self._final
        # Whether the training speaks yet is in its metrics.
        self._read_metrics()
        moment = self._play.moment()
        begun = [attempt for attempt in self._final.attempts if attempt.started_s <= moment]
        since_s = begun[-1].started_s if begun else 0.0
        speaks = self._all_metrics.metrics.time_s is not None and self._all_metrics.metrics.time_s >= since_s
        last = len(begun) == len(self._final.attempts)
        asked_s = finite((self._final.stop or {}).get("requested_s"))
        stopping = last and asked_s is not None and asked_s <= moment
        engine = self._final.engine
        return replace(
            self._final,
            status="stopping" if stopping else "running" if speaks else "starting",
            attempts=begun,
            ended_s=None,
            exit=None,
            outcome=None,
            notes=[],
            advice=[],
            stop=self._final.stop if stopping else None,
            engine=engine if speaks else {key: engine[key] for key in engine if key.startswith("planned")},
        )

    def _has_passed(self, mark: Mark | None) -> bool:
        """Whether the moment of a line of the log has come."""
        if self._play.over:
            return True
        if mark is None:
            return False
        moment = self._play.moment()
        attempt = sum(attempt.started_s <= moment for attempt in self._final.attempts) or 1
        if mark.attempt != attempt or mark.step is None:
            return mark.attempt <= attempt
        if mark.evaluation:
            evaluated = self._all_metrics.metrics.series.get("eval_loss")
            return evaluated is not None and (evaluated.last_step or 0) >= mark.step
        return (self._all_metrics.metrics.step or 0) >= mark.step


def spans_of(folder: RunFolder, state: RunState) -> list[tuple[float, float]]:
    """When the run was trained: (begin, end) of each attempt, in Unix time. Raises UsageError, as ReplaySource does."""
    name = plain_text(folder.path.resolve().name)
    if state.is_active:
        message = tr(
            "{name} is {status}: a replay is of a run that has ended. Watch it live without --replay.",
            name=name,
            status=tr(state.status),
        )
        raise usage_error("still_running", "--replay", message)
    files = (folder.metrics_jsonl, folder.system_jsonl)
    seen = [time_s for path in files for time_s in edge_times(path)]
    if not seen:
        message = tr(
            "{name} cannot be replayed: neither its metrics nor its samples of the machine carry a time.", name=name
        )
        raise usage_error("nothing_to_replay", "--replay", message)
    begin = min([*seen, *(attempt.started_s for attempt in state.attempts[:1])])
    end = max([*seen, state.ended_s or 0.0])
    starts = sorted({attempt.started_s for attempt in state.attempts[1:] if begin < attempt.started_s < end})
    ends = [attempt.ended_s for attempt in state.attempts if attempt.ended_s is not None]
    if len(ends) < len(state.attempts):
        # An attempt that was lost says nothing of its end; what it wrote does.
        ends += [time_s for path in files for time_s in last_times(path, starts)]
    spans, at = [], begin
    for start in starts:
        spans.append((at, max((one for one in ends if at < one <= start), default=start)))
        at = start
    return [*spans, (at, end)]


def last_times(path: Path, before: Sequence[float]) -> list[float]:
    """For each moment, the time of the last row of a JSON-lines file before it; reads the file once, in order."""
    left = [*before]
    found: list[float | None] = []
    last: float | None = None
    try:
        with open_file(path) as file:
            for line in file:
                time_s = _time_in(line)
                while left and time_s is not None and time_s >= left[0]:
                    found.append(last)
                    left.pop(0)
                last = last if time_s is None else time_s
    except OSError:
        return []
    return [time_s for time_s in (*found, last if left else None) if time_s is not None]


def edge_times(path: Path) -> list[float]:
    """The times of the first and the last rows of a JSON-lines file; empty where there are none."""
    try:
        with open_file(path) as file:
            head = file.read(EDGE_BYTES).splitlines()[:3]
            file.seek(max(0, path.stat().st_size - EDGE_BYTES))
            tail = file.read().splitlines()[-3:]
    except OSError:
        return []
    return [time_s for line in (*head, *tail) if (time_s := _time_in(line)) is not None]


def _time_in(line: bytes) -> float | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return finite(row.get("time_s")) if isinstance(row, dict) else None
