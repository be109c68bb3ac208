"""Refiner: a plan at once from what is known, and better ones as traces arrive. Front ends plan through it."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from trainwiz.core.errors import Finding, Severity, sort_findings
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.hardware.machine import Machine, Rates
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr
from trainwiz.core.plan.gather import Gathered, plan_gathered
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.workload import model_json
from trainwiz.core.tracing.request import TraceAnswer, TraceProblem, TraceRequest, TraceResult

if TYPE_CHECKING:
    from trainwiz.core.tracing.worker import TraceWorker

RefineTier = Literal["analytic", "layers", "full"]
"""How far to go: formulas alone, or traces; "layers" is an older word for "full"."""

MOST_ANSWERS = 128
"""Kept in memory; the oldest go first."""
LASTING = frozenset({"unknown_model", "remote_code", "invalid_config", "unsupported", "timeout"})
"""Problems that asking again does not mend."""
MOST_ROUNDS = 4
"""A trace may say no, and the plan moves to a workload that needs its own."""
MOST_CANDIDATES = 8
"""Traces for the numbers of remedies, at once."""
LOOK_EVERY_S = 0.05
GIVE_UP_S = 75.0
"""A worker ends every trace by itself before this."""
NOT_BUILT = frozenset({"unknown_model", "invalid_config"})
"""Problems that training meets too. Code of the model's own is said where the model is read."""


class Refiner:
    """Plans what was gathered with all that is known, and finds out more. Thread-safe; outlives single plans.

    `worker` is None where nothing is to be traced. `measurements` gives those of a machine, newest first, `rates` what its
    devices were measured to do.
    """

    def __init__(
        self,
        worker: TraceWorker | None = None,
        measurements: Callable[[Machine], tuple[Measurement, ...]] = lambda machine: (),
        rates: Callable[[Machine], tuple[Rates, ...]] = lambda machine: (),
    ) -> None:
        self._worker = worker
        self._measurements = measurements
        self._rates = rates
        # Replaced and never changed, so that another thread reads a whole one.
        self._answers: dict[TraceRequest, TraceAnswer] = {}
        self._failure: TraceProblem | None = None
        """Of the worker itself; an answer mends it."""

    def measured(self, machine: Machine) -> Evidence:
        """What was measured on a machine, without traces."""
        return Evidence(measurements=self._measurements(machine), kept_rates=self._rates(machine))

    def plan(self, gathered: Gathered) -> Plan:
        """The plan with what is known now: no trace is started. Raises what `plan_gathered` raises."""
        model, traces = gathered.model, dict[TraceRequest, TraceResult]()
        if model is not None:
            config = model_json(model.architecture, gathered.config.model.architecture_overrides)
            # No trace of another model helps a plan.
            of_model = (
                (request, answer) for request, answer in self._answers.items() if request.model_config == config
            )
            traces = {request: answer for request, answer in of_model if isinstance(answer, TraceResult)}
        plan = plan_gathered(gathered, replace(self.measured(gathered.machine), traces=traces))
        return self._with_problem(plan)

    def improve(
        self,
        gathered: Gathered,
        on_plan: Callable[[Plan], None],
        tier: RefineTier = "full",
        is_cancelled: Callable[[], bool] = lambda: False,
        limit_s: float | None = None,
    ) -> Plan:
        """Traces the plan's workload, then the workloads that remedies promise.

        `on_plan` gets each better plan as it comes, and one that says what is under way. Blocks until
        everything of `tier` is known, `is_cancelled` says so (looked at 20 times a second) or `limit_s`
        seconds are over; returns the best plan. A worker that fails is no exception: the plan then says
        why in `memory.waiting`.
        """
        deadline, asked = time.monotonic() + (math.inf if limit_s is None else limit_s), set[TraceRequest]()

        def is_over() -> bool:
            return is_cancelled() or time.monotonic() > deadline

        def show(plan: Plan) -> None:
            if not is_cancelled():
                on_plan(plan)

        plan = shown = self.plan(gathered)
        if self._worker is None or tier == "analytic":
            return plan
        for _ in range(MOST_ROUNDS + 2):
            wanted = [request for request in self._wanted(plan) if request not in asked]
            if not wanted or is_over():
                break
            asked.update(wanted)
            show(_waiting(plan, tr("tracing the whole model…")))
            self._ask(self._worker, wanted, is_over)
            plan = shown = self.plan(gathered)
            show(plan)
        if time.monotonic() > deadline:
            plan = self._with_problem(plan, tr("a better estimate was not ready in time"))
        if plan != shown:
            show(plan)
        return plan

    def _wanted(self, plan: Plan) -> list[TraceRequest]:
        """The trace of the plan's own workload; where that is there, those of its remedies."""
        own = TraceRequest.of(plan.work) if plan.work is not None else None
        if own is None or own not in self._answers:
            return [own] if own is not None else []
        remedies = filter(None, map(TraceRequest.of, plan.candidates))
        missing = [request for request in dict.fromkeys(remedies) if request not in self._answers]
        return missing[:MOST_CANDIDATES] if isinstance(self._answers[own], TraceResult) else []

    def _ask(self, worker: TraceWorker, requests: list[TraceRequest], is_over: Callable[[], bool]) -> None:
        """Until all are answered, time is over or the search is cancelled."""
        arrived: queue.SimpleQueue[tuple[TraceRequest, TraceAnswer]] = queue.SimpleQueue()

        def answered(request: TraceRequest, answer: TraceAnswer) -> None:
            arrived.put((request, answer))

        handles = [worker.submit(request, partial(answered, request)) for request in requests]
        waiting, give_up = len(requests), time.monotonic() + GIVE_UP_S * len(requests)
        while waiting and not is_over():
            if time.monotonic() > give_up:
                message = tr("The tracer does not respond; this is the estimate without it.")
                self._learn(requests[0], TraceProblem("worker_died", message))
                break
            try:
                self._learn(*arrived.get(timeout=LOOK_EVERY_S))
                waiting -= 1
            except queue.Empty:
                continue
        if waiting:
            for handle in handles:
                worker.cancel(handle)

    def _learn(self, request: TraceRequest, answer: TraceAnswer) -> None:
        if isinstance(answer, TraceProblem) and answer.code not in LASTING:
            self._failure = answer
            return
        if isinstance(answer, TraceResult):
            self._failure = None
        self._answers = dict([*self._answers.items(), (request, answer)][-MOST_ANSWERS:])

    def _with_problem(self, plan: Plan, otherwise: str = "") -> Plan:
        """With why nothing better than formulas is to be had, as far as it was tried."""
        request = TraceRequest.of(plan.work) if plan.work is not None else None
        answer = self._answers.get(request, self._failure) if request is not None else None
        if not isinstance(answer, TraceProblem):
            return _waiting(plan, otherwise)
        plan = _waiting(plan, answer.message)
        if answer.code not in NOT_BUILT:
            return plan
        # Elsewhere another version of transformers may be able to.
        severity: Severity = "warning" if plan.machine.hypothetical else "error"
        broken = Finding("model_not_built", severity, "model.name", answer.message)
        others = (finding for finding in plan.findings if finding != broken)
        return replace(plan, findings=sort_findings([*others, broken]))


def _waiting(plan: Plan, words: str) -> Plan:
    return plan if words == plan.memory.waiting else replace(plan, memory=replace(plan.memory, waiting=words))
