"""The thread of the keeper that looks at its run and writes down what ails it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.advice import ADVICE_JSONL, Advice, AdviceFile
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.order import log
from trainwiz.core.supervise.recorder import ends_a_line
from trainwiz.core.supervise.watchers.watchers import WATCHED_AFTER_S, Observation, Run, watched_advice
from trainwiz.core.telemetry.advice import MOMENTARY
from trainwiz.core.telemetry.run_setup import setup_of
from trainwiz.core.telemetry.snapshot import computes_on_cpu, read_planned

# AdviceLog: advice.jsonl, one line at each change and none for a trouble of a moment.

QUIET_S = 60.0
"""What is not seen for this long is over; a trouble that comes and goes needs twice as long each time,"""
MOST_DOUBLINGS = 6
"""an hour at most."""
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
    times: int = 0
    """How often it was written anew after it was over."""


class AdviceLog:
    """Of one run folder; the only writer of its codes. `tell` is called again and again with all that holds."""

    def __init__(self, folder: Path, after_s: Mapping[str, float], clock: Callable[[], float]) -> None:
        """`after_s`: code -> seconds that it must hold before it is worth a line; at once without."""
        self.path = folder / ADVICE_JSONL
        self._after_s = after_s
        self._clock = clock
        self._standing: dict[str, Standing] = {}
        self._times: dict[str, int] = {}
        self._whole_line = False

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
            standing = self._standing.setdefault(code, Standing(now, now, times=self._times.get(code, 0)))
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
        elif now - standing.last_s >= QUIET_S * 2 ** min(standing.times, MOST_DOUBLINGS):
            self._write(_row(standing.advice, now, cleared=True))
            self._times[code] = standing.times + 1
            del self._standing[code]

    def _write(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self.path.open("ab") as file:
            if not self._whole_line and not ends_a_line(self.path):
                # A keeper that was killed while it wrote left half a line.
                line = b"\n" + line
            self._whole_line = False
            file.write(line)
        self._whole_line = True


def _row(advice: Advice, time_s: float, *, cleared: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"time_s": round(time_s, 3), "where": WHERE, **advice.to_json()}
    return {**row, "severity": "cleared"} if cleared else row


# Watch: the thread of the keeper that looks at its run and writes down what ails it.

LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE = 0.001


class Watch:
    """Of one run, over all its attempts. It must never end a run: what goes wrong here is a line of supervisor.log."""

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
        self._stands = stands
        self.run = run
        self.state = state
        self.problem: str | None = None
        self._clock = clock
        self._sample_every_s = sample_every_s
        self._log = AdviceLog(run.path, WATCHED_AFTER_S, clock)
        self._observation: Observation | None = None
        self._attempts = 0
        self._planned_step_s: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_sample(self, row: Mapping[str, Any]) -> None:
        """What the recorder samples; from its thread."""
        observation = self._observation
        if observation is not None:
            observation.take_sample(row)

    def stop(self) -> None:
        """Ends the thread after a last look, and takes back what is about a moment that is over."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
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
            watched_advice(
                observation, Run(self.state.status, setup_of(engine), computes_on_cpu(engine), self._planned_step_s)
            )
        )

    def _begin_attempt(self) -> None:
        if not self._attempts:
            self._log.take_over(WATCHED_AFTER_S)
            self._planned_step_s = read_planned(read_json(self.run.plan_json) or {}).step_high_s
        self._attempts = len(self.state.attempts)
        if self._attempts:
            began_s = self.state.attempts[-1].started_s
            self._observation = Observation(self.run, began_s, self._sample_every_s, clock=self._clock)

    def _keep_looking(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_s = time.thread_time()
            self._try(self.look)
            wait_s = max(LOOK_EVERY_S, (time.thread_time() - started_s) / SHARE_OF_A_CORE)

    def _try(self, step: Callable[[], object]) -> None:
        problem = None
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a watcher that fails must not end the run
            problem = f"The run could not be watched: {type(error).__name__}: {error}"
        if problem is not None and problem != self.problem:
            log(problem)
        self.problem = problem
