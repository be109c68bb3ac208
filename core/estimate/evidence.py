"""Evidence: what is known of a workload beyond the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult


@dataclass(frozen=True, slots=True)
class Evidence:
    """Traces of workloads, and measurements of this machine. Given to make_plan, which stays pure."""

    traces: Mapping[TraceRequest, TraceResult] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    """Of the machine that the plan is for, newest first."""
    waiting: str = ""
    """What the traces are waiting for, or why there are none: shown beside the tier."""

    def trace_of(self, work: Workload) -> TraceResult | None:
        request = TraceRequest.of(work)
        return None if request is None else self.traces.get(request)


NO_EVIDENCE = Evidence()
