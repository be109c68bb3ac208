"""Refiner: a plan at once from what is known, and better ones as traces arrive."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Literal

from trainwiz.core.errors import Finding, Severity, sort_findings
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine, Rates
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr
from trainwiz.core.plan.gather import Gathered, plan_gathered
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.workload import model_json
from trainwiz.core.tracing.request import TraceAnswer, TraceProblem, TraceRequest, TraceResult

if TYPE_CHECKING:
    from trainwiz.core.tracing.worker import TraceWorker

# KnownTraces: the traces that were made, and the requests of which there can be none.

MOST_ANSWERS = 128
"""Kept in memory; the oldest go first."""
LASTING = frozenset({"unknown_model", "remote_code", "invalid_config", "unsupported", "timeout"})
"""Problems that asking again does not mend."""


class KnownTraces:
    """Thread-safe; bounded."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: dict[TraceRequest, TraceAnswer] = {}
        self._failure: TraceProblem | None = None
        """Of the worker itself; an answer mends it."""

    def traces(self, model_config: str) -> dict[TraceRequest, TraceResult]:
        """Those of one model, given as in a request: no other helps a plan."""
        with self._lock:
            known = list(self._answers.items())
        of_model = ((request, answer) for request, answer in known if request.model_config == model_config)
        return {request: answer for request, answer in of_model if isinstance(answer, TraceResult)}

    def answer_of(self, request: TraceRequest) -> TraceAnswer | None:
        """A trace, or a problem that asking again does not mend."""
        with self._lock:
            return self._answers.get(request)

    def problem_of(self, work: Workload | None) -> TraceProblem | None:
        """Why nothing better than formulas is to be had for a workload, as far as it was tried."""
        request = TraceRequest.of(work) if work is not None else None
        if request is None:
            return None
        answer = self.answer_of(request) or self._failure
        return answer if isinstance(answer, TraceProblem) else None

    def learn(self, request: TraceRequest, answer: TraceAnswer) -> None:
        with self._lock:
            if isinstance(answer, TraceResult):
                self._failure = None
            elif answer.code not in LASTING:
                self._failure = answer
                return
            self._answers.pop(request, None)
            self._answers[request] = answer
            while len(self._answers) > MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]


# Refiner: a plan at once from what is known, and better ones as traces arrive. Front ends plan through it.

RefineTier = Literal["analytic", "layers", "full"]
"""How far to go: formulas alone, or traces; "layers" is an older word for "full"."""

MOST_ROUNDS = 4
"""A trace may say no, and the plan moves to a workload that needs its own."""
MOST_CANDIDATES = 8
"""Traces for the numbers of remedies."""
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
        self._known = KnownTraces()

    def measured(self, machine: Machine) -> Evidence:
        """What was measured on a machine, without traces."""
        return Evidence(measurements=self._measurements(machine), kept_rates=self._rates(machine))

    def plan(self, gathered: Gathered) -> Plan:
        """The plan with what is known now: no trace is started. Raises what `plan_gathered` raises."""
        model, overrides = gathered.model, gathered.config.model.architecture_overrides
        traces = self._known.traces(model_json(model.architecture, overrides)) if model is not None else {}
        plan = plan_gathered(gathered, replace(self.measured(gathered.machine), traces=traces))
        return _waiting_for(plan, self._known.problem_of(plan.work))

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
        search = _Search(self, gathered, on_plan, is_cancelled, None if limit_s is None else time.monotonic() + limit_s)
        return search.run(tier)


@dataclass(slots=True)
class _Search:
    """One `improve`."""

    refiner: Refiner
    gathered: Gathered
    on_plan: Callable[[Plan], None]
    is_cancelled: Callable[[], bool]
    deadline: float | None
    shown: list[Plan] = field(default_factory=list)

    def run(self, tier: RefineTier) -> Plan:
        plan = self.refiner.plan(self.gathered)
        if self.refiner._worker is None or tier == "analytic":
            return plan
        plan = self._candidates(self._settled(plan))
        late = tr("a better estimate was not ready in time") if self._is_late() else ""
        last = _waiting_for(plan, self.refiner._known.problem_of(plan.work), late)
        if self.shown and self.shown[-1] != last:
            self._show(last)
        return last

    def _settled(self, plan: Plan) -> Plan:
        """The plan whose own workload is traced, as far as that can be had."""
        for _ in range(MOST_ROUNDS):
            request = TraceRequest.of(plan.work) if plan.work is not None else None
            if request is None or self._over() or self.refiner._known.answer_of(request) is not None:
                return plan
            self._show(replace(plan, memory=replace(plan.memory, waiting=tr("tracing the whole model…"))))
            self._ask([request])
            if not isinstance(self.refiner._known.answer_of(request), TraceResult):
                return plan
            plan = self.refiner.plan(self.gathered)
            self._show(plan)
        return plan

    def _candidates(self, plan: Plan) -> Plan:
        """The plan with traced numbers in its remedies."""
        asked = 0
        for _ in range(2):
            wanted = dict.fromkeys(filter(None, map(TraceRequest.of, plan.candidates)))
            missing = [request for request in wanted if self.refiner._known.answer_of(request) is None]
            missing = missing[: MOST_CANDIDATES - asked]
            if self.refiner._known.problem_of(plan.work) is not None or not missing or self._over():
                return plan
            asked += len(missing)
            waiting = tr("tracing the estimates of the fixes…")
            self._show(replace(plan, memory=replace(plan.memory, waiting=waiting)))
            self._ask(missing)
            plan = self.refiner.plan(self.gathered)
            self._show(plan)
        return plan

    def _ask(self, requests: list[TraceRequest]) -> None:
        """Until all are answered, time is over or the search is cancelled."""
        worker, learn = self.refiner._worker, self.refiner._known.learn
        assert worker is not None
        arrived: queue.SimpleQueue[tuple[TraceRequest, TraceAnswer]] = queue.SimpleQueue()

        def deliver(request: TraceRequest) -> Callable[[TraceAnswer], None]:
            return lambda answer: arrived.put((request, answer))

        handles = [worker.submit(request, deliver(request)) for request in requests]
        waiting, give_up = len(requests), time.monotonic() + GIVE_UP_S * len(requests)
        while waiting and not self._over():
            if time.monotonic() > give_up:
                message = tr("The tracer does not respond; this is the estimate without it.")
                learn(requests[0], TraceProblem("worker_died", message))
                break
            try:
                request, answer = arrived.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                continue
            waiting -= 1
            learn(request, answer)
        if waiting:
            for handle in handles:
                worker.cancel(handle)

    def _over(self) -> bool:
        return self.is_cancelled() or self._is_late()

    def _is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _show(self, plan: Plan) -> None:
        if not self.is_cancelled():
            self.shown = [plan]
            self.on_plan(plan)


def _waiting_for(plan: Plan, problem: TraceProblem | None, otherwise: str = "") -> Plan:
    words = problem.message if problem is not None else otherwise
    if words == plan.memory.waiting:
        return plan
    plan = replace(plan, memory=replace(plan.memory, waiting=words))
    if problem is None or problem.code not in NOT_BUILT:
        return plan
    # Elsewhere another version of transformers may be able to.
    severity: Severity = "warning" if plan.machine.hypothetical else "error"
    broken = Finding("model_not_built", severity, "model.name", problem.message)
    return replace(plan, findings=sort_findings([*plan.findings, broken]))
