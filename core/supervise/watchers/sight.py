"""Sight: what the watchers know of a run, from the recorder's samples and the files that the training writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.phase import Phase, PhaseNow, read_phase
from trainwiz.core.telemetry.checkpoint_room import Saves
from trainwiz.core.telemetry.checkpoint_size import CheckpointSize, saves_of
from trainwiz.core.telemetry.course import Course
from trainwiz.core.telemetry.machine_history import MachineHistory
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.run_setup import RunSetup
from trainwiz.core.telemetry.tail import JsonLinesTail

METRICS_WINDOW_BYTES = 256 * 1024
"""Of the rows of earlier attempts, as many as tell the pace."""
READ_NAMES = ("time_s", "step", "loss", "step_s", "data_wait_s", "eval_loss", "resumed_from")
"""What the watchers need of a row: all others would only take memory."""
WAITING_SAMPLES = 600
ASLEEP_S = 60.0
"""Between two looks: longer than any of them takes."""


class Sight:
    """Of one attempt. One thread looks; another may hand over samples."""

    def __init__(
        self, run: RunFolder, began_s: float, sample_every_s: float = 1.0, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`began_s`: Unix time at which the attempt began; what is older is another's."""
        self.run = run
        self.began_s = began_s
        self.sample_every_s = sample_every_s
        self.now_s = self.awake_s = clock()
        """Of the newest look, and since when looks follow each other."""
        self.metrics = Metrics()
        self.course = Course()
        self.machine = MachineHistory()
        self.phase: PhaseNow | None = None
        self.rows = 0
        """Logged training steps of this attempt."""
        self._clock = clock
        self._longest_s: dict[Phase, float] = {}
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=WAITING_SAMPLES)
        self._tail = JsonLinesTail(run.metrics_jsonl, window_bytes=METRICS_WINDOW_BYTES)
        self._sizes = CheckpointSize(run.path, clock=clock)

    def take_sample(self, row: Mapping[str, Any]) -> None:
        """A line of system.jsonl, without what it tells of earlier attempts; from any thread."""
        self._samples.append({name: value for name, value in row.items() if name != "so_far"})

    def look(self) -> None:
        """Bring all up to date."""
        before_s, self.now_s = self.now_s, self._clock()
        if not 0 <= self.now_s - before_s <= ASLEEP_S:
            # The machine slept, or its clock was set: nothing is known of the time between.
            self.awake_s = self.now_s
        while self._samples:
            self.machine.add_rows([self._samples.popleft()])
        rows = [{name: row[name] for name in READ_NAMES if name in row} for row in self._tail.read_new()]
        own = [row for row in rows if (row.get("time_s") or 0.0) >= self.began_s]
        if own and not self.rows:
            # What the start took of RAM and disk is no trend.
            self.machine = MachineHistory()
        self.rows += sum("loss" in row for row in own)
        self.metrics.add_rows(own)
        self.course.add_rows(own)
        self._look_at_phase()

    def saves(self, setup: RunSetup) -> Saves | None:
        """What the run still saves; None before its first checkpoint, or where it does not save by steps."""
        return saves_of(setup, self._sizes, self.metrics.step)

    def left_s(self, setup: RunSetup) -> float | None:
        """Until the last step, at the pace of the wall clock; None where that is not known."""
        pace, step = self.metrics.pace(), self.metrics.step
        if setup.max_steps is None or step is None or pace.wall_step_s is None:
            return None
        return max(0.0, setup.max_steps - step) * pace.wall_step_s

    def checkpoint_bytes(self) -> int | None:
        return self._sizes.next_bytes()

    def failure(self) -> Mapping[str, Any]:
        """What rank 0 wrote when it died; empty while it lives."""
        path = self.run.failure_json(0)
        return (read_json(path) or {}) if path.exists() else {}

    def longest_s(self, phase: Phase) -> float | None:
        """The longest time that a phase of this kind took so far; None where none was seen from beginning to end."""
        return self._longest_s.get(phase)

    def _look_at_phase(self) -> None:
        said = read_phase(self.run)
        said = said if said is not None and said.since_s >= self.began_s else None
        before, self.phase = self.phase, said
        if before is not None and said is not None and said.since_s > before.since_s:
            took_s = said.since_s - before.since_s
            self._longest_s[before.phase] = max(took_s, self._longest_s.get(before.phase, 0.0))
