"""Watching a run: the keeper looks as a viewer does, and writes down what ails the run."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.files import append_line
from trainwiz.core.language import tr
from trainwiz.core.lines import JsonLinesTail, Seldom
from trainwiz.core.run.attempts import ADVICE_JSONL, Advice, AdviceFile, read_phase
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.ties import SideWork
from trainwiz.core.telemetry.advice import MOMENTARY, live_advice, training_advice
from trainwiz.core.telemetry.machine import CheckpointSize, MachineHistory, saves_of
from trainwiz.core.telemetry.metrics import NO_PACE, Metrics
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import numbers_finite, objects_in, plain_text, text_in, whole_in

WATCHED_AFTER_S: Mapping[str, float] = {
    "nan_loss": 0.0,
    "stalled": 0.0,
    "data_wait": 120.0,
    "gpu_lost": 5.0,
    "gpu_unreadable": 60.0,
    "heat": 60.0,
    "power_brake": 60.0,
    "sensors_silent": 0.0,
    "ram_full": 30.0,
    "ram_short": 60.0,
    "disk_short": 60.0,
}
"""Code -> seconds that it must hold before it is written: a hot second is no trouble. Other codes are left to viewers."""

# AdviceLog: advice.jsonl, one line at each change and none for a trouble of a moment.

QUIET_S = 120.0
"""What is not seen for this long is over: a trouble that comes and goes is one."""
SAY_AGAIN_S = 600.0
"""Figures in a text that stands are brought up to date this often."""
WHERE = "keeper"


@dataclass
class Standing:
    """One advice that is seen."""

    first_s: float
    last_s: float
    row: Mapping[str, Any] | None = None
    """As it was written last; None while nothing is written."""


class AdviceLog:
    """Of one run folder; the only writer of its codes. `tell` is called again and again with all that holds."""

    def __init__(self, folder: Path, after_s: Mapping[str, float], clock: Callable[[], float]) -> None:
        """`after_s`: code -> seconds that it must hold before it is worth a line; at once without."""
        self.path = folder / ADVICE_JSONL
        self._after_s = after_s
        self._clock = clock
        self._standing: dict[str, Standing] = {}

    def begin(self) -> None:
        """What a killed keeper could not take back is over until it is seen again. Raises OSError."""
        for row in AdviceFile(JsonLinesTail(self.path)).read():
            if row.get("where") == WHERE:
                self._write({**row, "severity": "cleared"})

    def tell(self, advice: Iterable[Advice]) -> None:
        """Raises OSError."""
        now, seen = self._clock(), {item.code: item for item in advice}
        for code, item in seen.items():
            standing = self._standing.setdefault(code, Standing(now, now))
            standing.last_s = now
            if self._is_due(standing, item.to_json()):
                standing.row = self._write({"where": WHERE, **item.to_json()})
        for code in self._standing.keys() - seen:
            standing = self._standing[code]
            # What is not written yet has to hold without a break.
            if standing.row is None or now - standing.last_s >= QUIET_S:
                self.clear([code])

    def clear(self, codes: Iterable[str]) -> None:
        """These are over. Raises OSError."""
        for code in self._standing.keys() & set(codes):
            if row := self._standing[code].row:
                self._write({**row, "severity": "cleared"})
            del self._standing[code]

    def _is_due(self, standing: Standing, said: Mapping[str, Any]) -> bool:
        row = standing.row
        if row is None:
            return standing.last_s - standing.first_s >= self._after_s.get(said["code"], 0.0)
        changed = {**row, **said} != row and standing.last_s - row["time_s"] >= SAY_AGAIN_S
        return changed or bool(row["severity"] != said["severity"])

    def _write(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row as it was written, with its time."""
        row = {**row, "time_s": round(self._clock(), 3)}
        append_line(self.path, json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())
        return row


# Watch: looks at the recorder's samples and the files that the training writes.

LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE = 0.001
METRICS_WINDOW_BYTES = 256 * 1024
"""Of the rows of earlier attempts, as many as tell the pace."""
READ_NAMES = ("time_s", "step", "loss", "step_s", "data_wait_s", "resumed_from")
"""What is needed of a row: all others would only take memory."""
WAITING_SAMPLES = 600
ASLEEP_S = 60.0
"""Between two looks: longer than any of them takes."""
SAMPLES_MISSING_S = 60.0


class Watch(SideWork):
    """Of one run, over all its attempts."""

    def __init__(
        self,
        run: RunFolder,
        state: RunState,
        sample_every_s: float,
        *,
        clock: Callable[[], float] = time.time,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        """`state` is the keeper's own: the newest status and attempt are read from it. `stands`: whether the folder is
        still the run's own."""
        super().__init__("The run could not be watched")
        self._stands = stands
        self._turns = Seldom(LOOK_EVERY_S, SHARE_OF_A_CORE)
        self.run = run
        self.state = state
        self._clock = clock
        self._sample_every_s = sample_every_s
        self._log = AdviceLog(run.path, WATCHED_AFTER_S, clock)
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=WAITING_SAMPLES)
        self._tail = JsonLinesTail(run.metrics_jsonl, window_bytes=METRICS_WINDOW_BYTES)
        self._sizes = CheckpointSize(run.path, clock=clock)
        self._attempt = 0
        self._metrics, self._machine = Metrics(), MachineHistory()
        """Of this attempt: each has a pace of its own."""
        self._now_s = self._awake_s = clock()
        """Of the newest look, and since when looks follow each other."""

    def take_sample(self, row: Mapping[str, Any]) -> None:
        """A line of system.jsonl; from the recorder's thread."""
        self._samples.append(row)

    def keep_looking(self) -> None:
        """A look where it is time for one."""
        self._turns.do(lambda: self._try(self.look))

    def end(self) -> None:
        """A last look, and what is about a moment that is over is taken back."""
        self._try(self.look)
        if self._stands():
            self._try(lambda: self._log.clear(MOMENTARY))

    def look(self) -> None:
        """One look. Raises OSError when the advice cannot be written."""
        if self._stands():
            if not self._attempt:
                self._log.begin()
            self._log.tell(self.advice())

    def advice(self) -> list[Advice]:
        """All that ails the run now, of what is watched."""
        self._read()
        snapshot = self._snapshot()
        found = [*training_advice(snapshot), *live_advice(snapshot), *self._of_sensors(), *self._of_guard()]
        return [item for item in found if item.code in WATCHED_AFTER_S]

    def _read(self) -> None:
        attempt, before_s, self._now_s = self.state.attempts[-1], self._now_s, self._clock()
        if not 0 <= self._now_s - before_s <= ASLEEP_S:
            # The machine slept, or its clock was set: nothing is known of the time between.
            self._awake_s = self._now_s
        if attempt.number != self._attempt:
            self._attempt, self._metrics = attempt.number, Metrics()
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        if samples and not self._metrics.of("loss").count:
            # What a start takes of RAM and disk is no trend.
            self._machine = MachineHistory()
        self._machine.add_rows(samples)
        rows = [{name: row[name] for name in READ_NAMES if name in row} for row in self._tail.read_new()]
        self._metrics.add_rows(row for row in rows if (row.get("time_s") or 0.0) >= attempt.started_s)

    def _snapshot(self) -> Snapshot:
        """As much of one as the watched advice needs."""
        metrics, attempt, engine = self._metrics, self.state.attempts[-1], dict(self.state.engine)
        pace, phase = metrics.pace(), read_phase(self.run)
        return Snapshot(
            source="run",
            path=str(self.run.path),
            name=self.state.name,
            status=self.state.status,
            time_s=self._now_s,
            step=whole_in(metrics.step),
            max_steps=whole_in(engine.get("max_steps")),
            pace=pace if pace.settled else NO_PACE,
            metrics=metrics.summaries(),
            non_finite_steps=metrics.of("loss").non_finite_steps,
            logged_s=metrics.time_s,
            pause_s=metrics.pause_s(),
            gpus=self._machine.gpus(),
            host=self._machine.host(),
            engine=engine,
            saves=saves_of(engine, self._sizes, metrics.step),
            attempts=(replace(attempt, started_s=max(attempt.started_s, self._awake_s)),),
            phase=phase if phase is not None and phase.since_s >= attempt.started_s else None,
        )

    def _of_guard(self) -> Iterator[Advice]:
        """The end of a training that its own guard has stopped before the bad loss was logged."""
        ended = read_json(self.run.failure_json(0)) or {}
        if any(finding.get("code") == "nan_loss" for finding in objects_in(ended.get("findings"))):
            remedy = tr("See the possible fixes: trainwiz diagnose {run}", run=name_for_commands(self.run.path))
            yield Advice("nan_loss", "error", plain_text(text_in(ended.get("message")) or ""), remedy)

    def _of_sensors(self) -> Iterator[Advice]:
        """The recorder is a thread of its own: it hangs where a driver does."""
        newest_s = numbers_finite(self._machine.latest.get("time_s"))
        silent_s = 0.0 if newest_s is None else self._now_s - max(newest_s, self._awake_s)
        if silent_s > SAMPLES_MISSING_S + 5 * self._sample_every_s:
            yield Advice(
                "sensors_silent",
                "warning",
                tr("The sensors of this machine have not responded for {time}.", time=span_words(silent_s)),
                tr("A hanging GPU driver causes this: `nvidia-smi` would hang too, and the machine needs a restart."),
            )
