"""Arm: one set of settings of a comparison, measured turn by turn in processes of its own."""

from __future__ import annotations

import time
from dataclasses import replace
from types import TracebackType
from typing import Any

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import TrainwizError
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr
from trainwiz.core.launch.probe import Probe
from trainwiz.core.launch.probe_order import ON_THE_LONGEST
from trainwiz.core.plan.result import Plan

WARM_STEPS = 4
"""Two on the longest batch, and two usual ones: of torch.compile the first compiles, and so does the first of another
length."""
STARTED, DONE = frozenset({"ready"}), frozenset({"step", "short"})
"""Kinds of lines of a probe. The last step of an epoch is short: every arm does it, on the same rows."""
LOOK_EVERY_S = 0.01
OF_WORK = ("precision", "attention", "optimizer")


class Arm:
    """Context manager: at its end no process of it is left.

    All arms do the same steps on the same rows with the same first weights. With `apart` the processes of
    an arm live for one turn only, because the memory does not hold two of them.
    """

    def __init__(
        self, plan: Plan, data: DataSummary | None, changes: dict[str, Any], ends_s: float, *, apart: bool
    ) -> None:
        """`changes` of the plan's config; `ends_s` on the monotonic clock."""
        self._plan = with_changes(plan, changes)
        self._data = data
        self._ends_s = ends_s
        self._apart = apart
        self._probe: Probe | None = None
        self._steps = 0
        self._measurement: Measurement | None = None
        self.words = ", ".join(_words(key, value) for key, value in changes.items()) or tr("the plan's own settings")
        self.turns: list[float] = []
        """Seconds of each turn."""
        self.losses: dict[int, float] = {}
        """Step -> loss."""
        self.grad_norms: dict[int, float] = {}
        """Step -> norm of its gradients before they were clipped, where it is a number."""
        self.warm_s: float | None = None
        """Of the first steps."""
        self.step_s: float | None = None
        """Of a step of the last turn, as long as it was computed: less than the plan's, of which it may be a part."""
        self.problem = ""

    def __enter__(self) -> Arm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def start(self) -> None:
        """Starts the processes, which load and then wait; nothing where each turn has its own."""
        if not self._apart:
            self._open()

    def warm_up(self) -> None:
        """The steps that compile, fill caches and show whether the longest batch fits; of each turn where it has its own."""
        if not self._apart:
            self._warm_up()

    def take_turn(self, steps: int) -> None:
        """Does `steps` steps and adds their seconds to `turns`; nothing after a problem or when the time is up."""
        if self.problem:
            return
        if self._apart:
            self._open()
            self._warm_up()
        started_s = time.monotonic()
        seconds = self._advance(steps) if self._steps >= WARM_STEPS else None
        if seconds is not None:
            self.turns.append(sum(seconds))
            self.step_s = (time.monotonic() - started_s) / len(seconds)
        if self._apart:
            self._close()

    def measurement(self) -> Measurement | None:
        """What the processes of this arm measured, as a probe of its settings."""
        if self._probe is not None:
            self._measurement = self._probe.result().measurement
        return self._measurement

    def _open(self) -> None:
        self._steps = 0
        self._probe = Probe(self._plan, self._data)
        self._probe.__enter__()
        try:
            self._probe.begin_in_turns(self._ends_s)
        except TrainwizError as error:
            self.problem = error.findings[0].message

    def _close(self) -> None:
        if self._probe is None:
            return
        if self.turns:
            self._measurement = self._probe.result().measurement
        probe, self._probe = self._probe, None
        probe.__exit__(None, None, None)

    def _warm_up(self) -> None:
        """No step is counted where the time is up before the first one."""
        if self.problem or self._lines(STARTED, 1) is None:
            return
        started_s = time.monotonic()
        if self._advance(WARM_STEPS) is not None:
            warm_s = time.monotonic() - started_s
            self.warm_s = warm_s if self.warm_s is None else self.warm_s

    def _advance(self, steps: int) -> list[float] | None:
        """Seconds of each of the next steps, those on the longest batch left out; None where they were not done."""
        assert self._probe is not None
        self._steps += steps
        try:
            self._probe.allow(self._steps)
        except OSError as error:
            self.problem = str(error)
            return None
        lines = self._lines(DONE, self._steps - ON_THE_LONGEST)
        if lines is None:
            return None
        self.losses |= {int(line["step"]): float(line["loss"]) for line in lines}
        self.grad_norms |= {int(line["step"]): float(line["grad_norm"]) for line in lines if line.get("grad_norm")}
        return [float(line["seconds"]) for line in lines[-steps:]]

    def _lines(self, events: frozenset[str], count: int) -> list[dict[str, Any]] | None:
        """The lines of these kinds once there are so many; None where the time is up first, or the processes ended."""
        assert self._probe is not None
        while True:
            # Asked first: what a process wrote before it ended is there then.
            problem = self._probe.problem
            found = [line for line in self._probe.look() if line.get("event") in events]
            if len(found) >= count:
                return found
            if problem or time.monotonic() > self._ends_s:
                self.problem = problem
                return None
            time.sleep(LOOK_EVERY_S)


def _words(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key if value else f"{key}=false"
    return str(value)


def with_changes(plan: Plan, changes: dict[str, Any]) -> Plan:
    """The plan with other values of settings that leave batch, lengths and rows as they are."""
    if not changes or plan.work is None:
        return plan
    of_work = {
        key.removeprefix("engine."): value for key, value in changes.items() if key.removeprefix("engine.") in OF_WORK
    }
    config = plan.config.with_values(changes, "solved", {})
    return replace(plan, config=config, work=replace(plan.work, **of_work))
