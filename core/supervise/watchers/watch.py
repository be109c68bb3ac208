"""Watch: the thread of the keeper that looks at its run and writes down what ails it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.log import log
from trainwiz.core.supervise.watchers.advice_log import AdviceLog
from trainwiz.core.supervise.watchers.sight import Sight
from trainwiz.core.supervise.watchers.watchers import WATCHED_AFTER_S, Run, watched_advice
from trainwiz.core.telemetry.advice import MOMENTARY
from trainwiz.core.telemetry.planned import read_planned
from trainwiz.core.telemetry.run_setup import setup_of
from trainwiz.core.telemetry.snapshot import computes_on_cpu

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
        self._sight: Sight | None = None
        self._attempts = 0
        self._planned_step_s: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_sample(self, row: Mapping[str, Any]) -> None:
        """What the recorder samples; from its thread."""
        sight = self._sight
        if sight is not None:
            sight.take_sample(row)

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
        sight = self._sight
        if sight is None:
            return
        sight.look()
        engine = dict(self.state.engine)
        self._log.tell(
            watched_advice(
                sight, Run(self.state.status, setup_of(engine), computes_on_cpu(engine), self._planned_step_s)
            )
        )

    def _begin_attempt(self) -> None:
        if not self._attempts:
            self._log.take_over(WATCHED_AFTER_S)
            self._planned_step_s = read_planned(read_json(self.run.plan_json) or {}).step_high_s
        self._attempts = len(self.state.attempts)
        if self._attempts:
            began_s = self.state.attempts[-1].started_s
            self._sight = Sight(self.run, began_s, self._sample_every_s, clock=self._clock)

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
