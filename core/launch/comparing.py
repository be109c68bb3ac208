"""compare: a plan's settings and their alternatives in turns on this machine, each in processes of its own."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import CannotRunError
from trainwiz.core.findings import Finding
from trainwiz.core.history.comparison import Alternative, Comparison, Gain, gain_of
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.history.planned import planned_fields
from trainwiz.core.language import tr
from trainwiz.core.launch.alternatives import alternatives_of, growth
from trainwiz.core.launch.arm import Arm
from trainwiz.core.launch.loss_check import differs, learns_otherwise
from trainwiz.core.plan.result import Plan

LONGEST_S = 240.0
TURNS = 20
"""Of each arm, at most; two at least."""
FEWEST_TURNS = 6
CLEAR = 1.02
"""A range of gains no wider than this either way needs no more turns."""
TURN_S = 0.7
"""A turn has as many steps as this takes, one at least. Many short turns: other programs come and go within seconds."""
CLOSING_S = 4.0
CONTROLS = 2
"""Arms of the plan's own settings: what these two differ by is no gain."""
MOST_AT_ONCE = 5
"""Arms whose processes wait side by side."""
KEPT_FREE = 0.8
"""Share of the memory that all arms together may need."""
OFFERED = frozenset({"engine.precision"})
"""Measured and told, never taken by itself: it changes what is computed."""
TOGETHER_SHARE = 0.3
"""Of the time of a group of alternatives: what is kept for the faster ones together."""
LAST = "engine.compile"
"""Measured after the others, for it may use up the time."""

Listener = Callable[[str], None]


class Choosing:
    """One comparison; `measurements` has what its arms measured of the settings that the next plan may take."""

    def __init__(self, plan: Plan, data: DataSummary | None, limit_s: float, listener: Listener) -> None:
        """`plan` is one that `check_probe` allows, made without earlier comparisons."""
        self._plan = plan
        self._data = data
        self._ends_s = time.monotonic() + limit_s - CLOSING_S
        self._listener = listener
        self.measurements: list[Measurement] = []
        self._noise: float | None = None
        self._found = alternatives_of(plan)
        self._arms_at_once = self._room()
        self._apart = self._arms_at_once < CONTROLS + 1

    def run(self) -> Comparison:
        """Blocks until all is measured or the time is up. Raises CannotRunError where the plan's own settings fail."""
        wanted = [one for one in self._found if not one.note]
        results = {one.key + str(one.changes): one for one in self._found}
        groups = self._groups(wanted)
        for number, group in enumerate(groups):
            # A share of the time for each, and one for what is taken together.
            left_s = self._ends_s - time.monotonic()
            for one in self._measured(group, time.monotonic() + left_s / (len(groups) - number + TOGETHER_SHARE)):
                results[one.key + str(one.changes)] = one
        alternatives = [
            replace(one, taken=one.verdict == "faster" and one.key not in OFFERED) for one in results.values()
        ]
        alternatives = _one_of_each(alternatives)
        together = self._together(alternatives)
        return self._comparison(together)

    def _groups(self, wanted: Sequence[Alternative]) -> list[list[Alternative]]:
        """Those whose processes fit into memory beside each other and the plan's own; compiling alone."""
        usual = [one for one in wanted if one.key != LAST]
        # Processes that live for one turn only are never side by side: the plan's own are then started once for all.
        room = max(1, len(usual) if self._apart else self._arms_at_once - CONTROLS)
        groups = [usual[start : start + room] for start in range(0, len(usual), room)]
        return groups + [[one] for one in wanted if one.key == LAST]

    def _room(self) -> int:
        """Arms that the memory holds at once, each as large as the largest."""
        memory, machine = self._plan.memory, self._plan.machine
        grown = max((growth(self._plan, one.changes) for one in self._found if not one.note), default=1.0)
        needed = max(1.0, memory.host_ram_high_bytes or memory.host_ram_bytes)
        needed *= grown if self._plan.config.engine.device == "cpu" else 1.0
        of_host = int(KEPT_FREE * machine.ram_available_bytes // needed)
        capacity, used = memory.capacity_bytes, grown * max(1, memory.high_bytes)
        of_device = MOST_AT_ONCE if capacity is None else int(KEPT_FREE * capacity // used)
        return max(1, min(MOST_AT_ONCE, of_host, of_device))

    def _together(self, alternatives: list[Alternative]) -> list[Alternative]:
        """What is taken, measured as it will run; where that is no gain over the best one alone, only that one is taken."""
        taken = [one for one in alternatives if one.taken]
        if len(taken) < 2:
            return alternatives
        changes = {key: value for one in taken for key, value in one.changes.items()}
        base = {key: self._plan.config.value(key) for key in changes}
        both = self._measured([Alternative(changes, base, "not_measured")], self._ends_s)[0]
        best = max(taken, key=lambda one: one.gain or 0.0)
        if both.verdict == "not_measured":
            return [*alternatives, both]
        if both.verdict == "faster" and (both.gain_high or 0.0) >= (best.gain or 0.0):
            return [*alternatives, replace(both, taken=True)]
        words = tr("together they gain no more than {key} alone", key=best.key)
        return [
            *(
                replace(one, taken=False, note=one.note or words) if one.taken and one is not best else one
                for one in alternatives
            ),
            both,
        ]

    def _measured(self, group: Sequence[Alternative], ends_s: float) -> list[Alternative]:
        """With verdicts; in turns with the plan's own settings."""
        if time.monotonic() > ends_s:
            return [replace(one, note=tr("the time was up")) for one in group]
        with ExitStack() as stack:
            arms = [
                stack.enter_context(Arm(self._plan, self._data, changes, ends_s, apart=self._apart))
                for changes in ({}, *(one.changes for one in group), {})
            ]
            base, control = arms[0], arms[-1]
            self._take_turns(arms, ends_s)
            if base.problem and not base.turns:
                raise CannotRunError(_failed(base.problem))
            self._keep(base)
            noise = _ratio(base, control)
            likely = noise.likely if noise is not None else 1.0
            self._noise = max(self._noise or 1.0, likely, 1 / likely)
            return [self._judged(one, base, arm, likely) for one, arm in zip(group, arms[1:-1], strict=True)]

    def _take_turns(self, arms: Sequence[Arm], ends_s: float) -> None:
        for arm in arms:
            arm.start()
        for arm in arms:
            self._listener(tr("the first steps of {settings}", settings=arm.words))
            arm.warm_up()
        for turn in range(TURNS):
            steps = max(1, round(TURN_S / max(arms[0].step_s or TURN_S, 1e-3)))
            order = list(arms) if turn % 2 == 0 else list(reversed(arms))
            for arm in order:
                if time.monotonic() > ends_s or arms[0].problem:
                    return
                self._listener(tr("turn {turn} of {turns}: {settings}", turn=turn + 1, turns=TURNS, settings=arm.words))
                arm.take_turn(steps)
            if turn + 1 >= FEWEST_TURNS and all(_is_clear(arms[0], arm) for arm in arms[1:]):
                return

    def _judged(self, one: Alternative, base: Arm, arm: Arm, noise: float) -> Alternative:
        """`noise`: pace over pace of two arms of the plan's own settings."""
        gain = _ratio(base, arm)
        if gain is None:
            return (
                replace(one, verdict="failed", note=arm.problem)
                if arm.problem
                else replace(one, note=tr("the time was up"))
            )
        gain = gain.widened(noise)
        once_s = None
        if base.warm_s is not None and arm.warm_s is not None and one.changes.get("engine.compile"):
            once_s = max(0.0, arm.warm_s - base.warm_s / gain.likely)
        found = replace(
            one,
            verdict=gain.verdict,
            gain=gain.likely,
            gain_low=gain.low,
            gain_high=gain.high,
            turns=min(len(base.turns), len(arm.turns)),
            once_s=once_s,
        )
        engine = self._plan.config.engine
        same_format = (
            not {"engine.precision", "engine.tf32"} & one.changes.keys()
            and engine.precision == "fp32"
            and not engine.tf32
        )
        work = self._plan.work
        difference, why = differs(base.losses, arm.losses, same_format=same_format, work=work)
        why = why or learns_otherwise(base.grad_norms, arm.grad_norms, same_format=same_format, work=work)
        found = replace(found, loss_difference=difference)
        if why:
            return replace(found, verdict="differs", note=why)
        if found.verdict == "faster":
            self._keep(arm)
        return found

    def _keep(self, arm: Arm) -> None:
        """Newest last: the plan takes the last one of the very same settings."""
        measurement = arm.measurement()
        if measurement is not None:
            self.measurements.append(measurement)

    def _comparison(self, alternatives: Sequence[Alternative]) -> Comparison:
        plan, work = self._plan, self._plan.work
        assert work is not None
        planned = planned_fields(plan) or {}
        own = next((one for one in self.measurements if not _changed(one, planned)), None)
        return Comparison(
            measured_at=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            machine=str(planned.get("machine")),
            model=str(planned.get("model")),
            model_name=plan.config.model.name,
            task=work.task,
            precision=work.precision,
            strategy=work.strategy,
            offload=work.offload,
            world_size=work.world_size,
            lora_rank=work.lora_rank,
            checkpointing=work.checkpointing,
            micro_batch=work.micro_batch,
            accumulation=work.accumulation,
            length=work.length,
            threads=planned.get("threads"),
            step_s=own.step_s if own is not None else None,
            alternatives=tuple(alternatives),
            noise=self._noise,
            packed=bool(planned.get("packed")),
            versions=dict(planned.get("versions") or {}),
        )


def _ratio(base: Arm, arm: Arm) -> Gain | None:
    """Of the turns that both have done."""
    pairs = list(zip(base.turns, arm.turns, strict=False))
    return gain_of([first for first, _ in pairs], [second for _, second in pairs])


def _is_clear(base: Arm, arm: Arm) -> bool:
    """Whether more turns would say nothing new."""
    gain = _ratio(base, arm)
    return bool(arm.problem) or (gain is not None and gain.high <= CLEAR * gain.likely)


def _changed(measurement: Measurement, planned: dict[str, Any]) -> bool:
    names = ("precision", "attention", "optimizer", "compiled", "tf32")
    return any(getattr(measurement, name) != planned.get(name) for name in names)


def _one_of_each(alternatives: Sequence[Alternative]) -> list[Alternative]:
    """Of several faster values of one setting only the fastest is taken."""
    best: dict[str, float] = {}
    for one in alternatives:
        if one.taken:
            best[one.key] = max(best.get(one.key, 0.0), one.gain or 0.0)
    return [replace(one, taken=one.taken and one.gain == best[one.key]) if one.taken else one for one in alternatives]


def _failed(reason: str) -> Finding:
    return Finding("probe_failed", "error", "bench", tr("The probe failed: {reason}", reason=reason))
