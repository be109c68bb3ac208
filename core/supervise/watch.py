"""Watching a run: what is seen of it, the advice that holds now, and the thread of the keeper that writes it down."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.files import append_line
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.attempts import ADVICE_JSONL, Advice, AdviceFile, Phase, PhaseNow, read_phase
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.ties import SideThread
from trainwiz.core.telemetry.advice import (
    MOMENTARY,
    STALLED_PAUSES,
    STALLED_S,
    data_wait_advice,
    gpu_advice,
    host_advice,
    loss_advice,
    stall_advice,
)
from trainwiz.core.telemetry.machine import CheckpointSize, MachineHistory, saves_of
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.snapshot import computes_on_cpu, read_planned
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import objects_in, plain_text, text_in, whole_in

# Observation: what the watchers know of a run, from the recorder's samples and the files that the training writes.

METRICS_WINDOW_BYTES = 256 * 1024
"""Of the rows of earlier attempts, as many as tell the pace."""
READ_NAMES = ("time_s", "step", "loss", "step_s", "data_wait_s", "eval_loss", "resumed_from")
"""What the watchers need of a row: all others would only take memory."""
WAITING_SAMPLES = 600
ASLEEP_S = 60.0
"""Between two looks: longer than any of them takes."""


class Observation:
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
        self.machine = MachineHistory()
        self.phase: PhaseNow | None = None
        self.rows = 0
        """Logged training steps of this attempt."""
        self._clock = clock
        self.longest_s: dict[Phase, float] = {}
        """The longest time that a phase took so far, of those that were seen from beginning to end."""
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=WAITING_SAMPLES)
        self._tail = JsonLinesTail(run.metrics_jsonl, window_bytes=METRICS_WINDOW_BYTES)
        self.sizes = CheckpointSize(run.path, clock=clock)

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
        self._look_at_phase()

    def failure(self) -> Mapping[str, Any]:
        """What rank 0 wrote when it died; empty while it lives."""
        path = self.run.failure_json(0)
        return (read_json(path) or {}) if path.exists() else {}

    def _look_at_phase(self) -> None:
        said = read_phase(self.run)
        said = said if said is not None and said.since_s >= self.began_s else None
        before, self.phase = self.phase, said
        if before is not None and said is not None and said.since_s > before.since_s:
            took_s = said.since_s - before.since_s
            self.longest_s[before.phase] = max(took_s, self.longest_s.get(before.phase, 0.0))


# The watchers: each is a function of what is seen, and gives the advice that holds now.

LEAST_ROWS = 20
"""Logged steps before their pace says anything: the first ones warm up."""
FIRST_STEP_S = 1_800.0
"""So much more than a planned step the first one may take: kernels are compiled, and caches are cold."""
SAMPLES_MISSING_S = 60.0
OWN_PACE: Mapping[Phase, str] = {
    "training": mark("No step was logged in the first {time}; one step was planned to take up to {usual}."),
    "evaluating": mark("The evaluation has taken {time} so far; the longest before took {usual}."),
    "generating": mark("The text generation has taken {time} so far; the longest before took {usual}."),
    "saving": mark("The save has taken {time} so far; the longest before took {usual}."),
}
"""Work whose usual time is known, by the plan or once it was done before -> what is said where it takes far longer."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the keeper knows beside what is seen."""

    status: str
    engine: Mapping[str, Any]
    """The engine record of its state."""
    on_cpu: bool
    """No card of this machine computes for the run."""
    planned_step_s: float | None = None
    """The longest that a step was planned to take."""


Watcher = Callable[[Observation, Run], Iterable[Advice]]

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


def watched_advice(observation: Observation, run: Run) -> list[Advice]:
    """All that holds now, at most one for each code."""
    found = [item for watcher in WATCHERS for item in watcher(observation, run) if item.code in WATCHED_AFTER_S]
    return list({item.code: item for item in reversed(found)}.values())[::-1]


def watch_loss(observation: Observation, run: Run) -> Iterable[Advice]:
    """The loss as it was logged, and the end of a training that its own guard has stopped before it was."""
    ended = observation.failure()
    findings = objects_in(ended.get("findings"))
    if any(finding.get("code") == "nan_loss" for finding in findings):
        text = text_in(ended.get("message")) or ""
        yield Advice(
            "nan_loss",
            "error",
            plain_text(text),
            tr("See the possible fixes: trainwiz diagnose {run}", run=name_for_commands(observation.run.path)),
        )
        return
    metrics = observation.metrics
    yield from loss_advice(metrics.summaries().get("loss"), metrics.of("loss").non_finite_steps)


def watch_steps(observation: Observation, run: Run) -> Iterable[Advice]:
    """A run that stands still, by its own pace."""
    if run.status != "running":
        return
    since_s = max(observation.began_s, observation.awake_s)
    metrics, phase = observation.metrics, observation.phase
    yield from stall_advice(metrics.time_s, metrics.pause_s(), observation.now_s, since_s, phase)
    yield from _long_phase(observation, run, since_s)


def _long_phase(observation: Observation, run: Run, since_s: float) -> Iterable[Advice]:
    """Other work than steps has a pace too, once it was done before; of the first step the plan says it."""
    phase = observation.phase
    if phase is None or phase.phase not in OWN_PACE:
        return
    usual_s, more_s = observation.longest_s.get(phase.phase), STALLED_S
    if phase.phase == "training":
        usual_s, more_s = None if observation.rows else run.planned_step_s, FIRST_STEP_S
    lasts_s = observation.now_s - max(phase.since_s, since_s)
    if usual_s is not None and lasts_s > STALLED_PAUSES * usual_s + more_s:
        text = tr(OWN_PACE[phase.phase], time=span_words(lasts_s), usual=span_words(usual_s))
        remedy = tr("One of its processes or the disk may be hanging: the log may show which.")
        yield Advice("stalled", "warning", text, remedy)


def watch_input(observation: Observation, run: Run) -> Iterable[Advice]:
    if observation.rows < LEAST_ROWS:
        return ()
    return data_wait_advice(observation.metrics.pace(), run.engine)


def watch_host(observation: Observation, run: Run) -> Iterable[Advice]:
    host, pace, step = observation.machine.host(), observation.metrics.pace(), observation.metrics.step
    if not observation.rows:
        # A start loads model and data: that goes on for minutes, and ends.
        host = replace(host, ram_lasts_s=None, disk_lasts_s=None)
    return host_advice(
        host,
        saves=saves_of(run.engine, observation.sizes, step),
        left_s=pace.left_s(step, whole_in(run.engine.get("max_steps"))),
    )


def watch_gpus(observation: Observation, run: Run) -> Iterable[Advice]:
    gpus = () if run.on_cpu else observation.machine.gpus()
    return gpu_advice(gpus, status=run.status, now_s=observation.now_s)


def watch_sensors(observation: Observation, run: Run) -> Iterable[Advice]:
    """The recorder is a thread of its own: it hangs where a driver does."""
    newest_s = observation.machine.latest.get("time_s")
    if not isinstance(newest_s, int | float):
        return
    silent_s = observation.now_s - max(newest_s, observation.awake_s)
    if silent_s > SAMPLES_MISSING_S + 5 * observation.sample_every_s:
        yield Advice(
            "sensors_silent",
            "warning",
            tr("The sensors of this machine have not responded for {time}.", time=span_words(silent_s)),
            tr("A hanging GPU driver causes this: `nvidia-smi` would hang too, and the machine needs a restart."),
        )


WATCHERS: tuple[Watcher, ...] = (watch_loss, watch_steps, watch_input, watch_host, watch_gpus, watch_sensors)


# AdviceLog: advice.jsonl, one line at each change and none for a trouble of a moment.

QUIET_S = 120.0
"""What is not seen for this long is over: a trouble that comes and goes is one."""
SAY_AGAIN_S = 600.0
"""Figures in a text that stands are brought up to date this often."""
WHERE = "keeper"


@dataclass
class Standing:
    """One advice that is seen, and perhaps written."""

    first_s: float
    last_s: float
    advice: Advice | None = None
    """As it was written last; None while nothing is written."""
    written_s: float = 0.0


class AdviceLog:
    """Of one run folder; the only writer of its codes. `tell` is called again and again with all that holds."""

    def __init__(self, folder: Path, after_s: Mapping[str, float], clock: Callable[[], float]) -> None:
        """`after_s`: code -> seconds that it must hold before it is worth a line; at once without."""
        self.path = folder / ADVICE_JSONL
        self._after_s = after_s
        self._clock = clock
        self._standing: dict[str, Standing] = {}

    def take_over(self, codes: Iterable[str]) -> None:
        """What an earlier keeper wrote and could not take back stands; it goes once it is not seen."""
        own, now = set(codes), self._clock()
        for row in AdviceFile(JsonLinesTail(self.path)).read():
            code = str(row.get("code"))
            if code in own and row.get("where") == WHERE:
                self._standing[code] = Standing(now, now, Advice(code, "note", str(row.get("text"))), now)

    def tell(self, advice: Iterable[Advice]) -> None:
        """Raises OSError."""
        now = self._clock()
        seen = {item.code: item for item in advice}
        for code, item in seen.items():
            standing = self._standing.setdefault(code, Standing(now, now))
            standing.last_s = now
            if self._is_due(standing, item, now):
                self._write(_row(item, now))
                standing.advice, standing.written_s = item, now
        for code in [code for code in self._standing if code not in seen]:
            self._miss(code, now)

    def clear(self, codes: Iterable[str]) -> None:
        """These are over, as the run is. Raises OSError."""
        now = self._clock()
        for code in codes:
            standing = self._standing.pop(code, None)
            if standing is not None and standing.advice is not None:
                self._write(_row(standing.advice, now, cleared=True))

    def _is_due(self, standing: Standing, item: Advice, now: float) -> bool:
        before = standing.advice
        if before is None:
            return now - standing.first_s >= self._after_s.get(item.code, 0.0)
        if before.level != item.level:
            return True
        return before != item and now - standing.written_s >= SAY_AGAIN_S

    def _miss(self, code: str, now: float) -> None:
        standing = self._standing[code]
        if standing.advice is None:
            # It has to hold without a break.
            del self._standing[code]
        elif now - standing.last_s >= QUIET_S:
            self._write(_row(standing.advice, now, cleared=True))
            del self._standing[code]

    def _write(self, row: Mapping[str, Any]) -> None:
        append_line(self.path, json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())


def _row(advice: Advice, time_s: float, *, cleared: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"time_s": round(time_s, 3), "where": WHERE, **advice.to_json()}
    return {**row, "severity": "cleared"} if cleared else row


# Watch: the thread of the keeper that looks at its run and writes down what ails it.

LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE = 0.001


class Watch(SideThread):
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
        super().__init__("watch", "The run could not be watched")
        self._stands = stands
        self.run = run
        self.state = state
        self._clock = clock
        self._sample_every_s = sample_every_s
        self._log = AdviceLog(run.path, WATCHED_AFTER_S, clock)
        self._observation: Observation | None = None
        self._attempts = 0
        self._planned_step_s: float | None = None

    def take_sample(self, row: Mapping[str, Any]) -> None:
        """What the recorder samples; from its thread."""
        observation = self._observation
        if observation is not None:
            observation.take_sample(row)

    def stop(self) -> None:
        """Ends the thread after a last look, and takes back what is about a moment that is over."""
        if self._stop.is_set():
            return
        super().stop()
        if not self._thread.is_alive():
            self._try(self.look)
            if self._stands():
                self._try(lambda: self._log.clear(MOMENTARY & WATCHED_AFTER_S.keys()))

    def look(self) -> None:
        """One look. Raises OSError when the advice cannot be written."""
        if not self._stands():
            return
        if len(self.state.attempts) != self._attempts:
            self._begin_attempt()
        observation = self._observation
        if observation is None:
            return
        observation.look()
        engine = dict(self.state.engine)
        self._log.tell(
            watched_advice(observation, Run(self.state.status, engine, computes_on_cpu(engine), self._planned_step_s))
        )

    def _begin_attempt(self) -> None:
        if not self._attempts:
            self._log.take_over(WATCHED_AFTER_S)
            self._planned_step_s = read_planned(read_json(self.run.plan_json) or {}).step_high_s
        self._attempts = len(self.state.attempts)
        if self._attempts:
            began_s = self.state.attempts[-1].started_s
            self._observation = Observation(self.run, began_s, self._sample_every_s, clock=self._clock)

    def _work(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_s = time.thread_time()
            self._try(self.look)
            wait_s = max(LOOK_EVERY_S, (time.thread_time() - started_s) / SHARE_OF_A_CORE)
