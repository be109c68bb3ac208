"""Known: the traces that were made, and the requests of which there can be none."""

from __future__ import annotations

from threading import Lock
from typing import Any

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.tracing.request import TraceRequest, TraceTier
from trainwiz.core.tracing.result import TraceAnswer, TraceProblem, TraceResult

MOST_TRACES = 64
"""Kept in memory; the oldest go first."""
LASTING = frozenset({"unknown_model", "remote_code", "invalid_config", "unsupported", "timeout"})
"""Problems that asking again does not mend."""
OF_THE_MODEL = frozenset({"unknown_model", "remote_code", "invalid_config"})
"""Problems that no other tier mends either."""
RANK = {"layers": 1, "full": 2}


class Known:
    """Thread-safe; bounded."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._traces: dict[TraceRequest, TraceResult] = {}
        self._problems: dict[tuple[TraceRequest, str], TraceProblem] = {}
        self._failure: TraceProblem | None = None
        """Of the worker itself; an answer mends it."""

    def traces(self, model_config: str) -> dict[TraceRequest, TraceResult]:
        """Those of one model, given as in a request: no other helps a plan."""
        with self._lock:
            return {request: trace for request, trace in self._traces.items() if request.model_config == model_config}

    def has(self, request: TraceRequest, tier: TraceTier) -> bool:
        """Whether a trace of this tier or a better one is there."""
        with self._lock:
            known = self._traces.get(request)
        return known is not None and RANK[known.tier] >= RANK[tier]

    def problem(self, request: TraceRequest, tier: TraceTier) -> TraceProblem | None:
        with self._lock:
            return self._problems.get((request, tier))

    def problem_of(self, work: Workload | None) -> TraceProblem | None:
        """Why nothing better than formulas is to be had for a workload, as far as it was tried."""
        request = TraceRequest.of(work) if work is not None else None
        if request is None or self.has(request, "layers"):
            return None
        return self.problem(request, "full") or self.problem(request, "layers") or self._failure

    def learn(self, request: TraceRequest, tier: TraceTier, answer: TraceAnswer) -> None:
        with self._lock:
            if isinstance(answer, TraceProblem):
                if answer.code in LASTING:
                    self._problems[request, tier] = answer
                    _drop_oldest(self._problems)
                else:
                    self._failure = answer
            else:
                self._failure = None
                known = self._traces.pop(request, None)
                best = known if known is not None and RANK[known.tier] > RANK[answer.tier] else answer
                self._traces[request] = best
                _drop_oldest(self._traces)


def _drop_oldest(kept: dict[Any, Any]) -> None:
    while len(kept) > MOST_TRACES:
        del kept[next(iter(kept))]
