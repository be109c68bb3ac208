"""Formulas put right by a trace of the same work in another batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.moment import Moment
from trainwiz.core.estimate.peak import Peak
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult

STANDING = ("weights", "gradients", "optimizer")
"""Kinds that no batch changes."""


@dataclass(frozen=True, slots=True)
class Kin:
    """A workload that differs in its batch alone, and its trace."""

    work: Workload
    trace: TraceResult


def nearest_kin(work: Workload, evidence: Evidence) -> Kin | None:
    """The traced workload that differs from `work` in the sizes of its batches alone, the nearest micro-batch first."""
    if not evidence.traces:
        return None
    request = TraceRequest.of(work)
    if request is None:
        return None
    found = [(other, trace) for other, trace in evidence.traces.items() if _same_but_batch(request, other)]
    if not found:
        return None
    wanted = (request.micro_batch, request.accumulation, request.eval_micro_batch)

    def distance(one: TraceRequest) -> tuple[float, int, int]:
        ratio = max(one.micro_batch, wanted[0]) / min(one.micro_batch, wanted[0])
        return ratio, abs(one.accumulation - wanted[1]), abs(one.eval_micro_batch - wanted[2])

    other, trace = min(found, key=lambda pair: (*distance(pair[0]), pair[1].tier != "full"))
    batch = {
        "micro_batch": other.micro_batch,
        "accumulation": other.accumulation,
        "eval_micro_batch": other.eval_micro_batch,
    }
    return Kin(replace(work, **batch), trace)  # type: ignore[arg-type]


def _same_but_batch(one: TraceRequest, other: TraceRequest) -> bool:
    # The long config is compared last: most differ in something short.
    return (
        replace(
            other,
            micro_batch=one.micro_batch,
            accumulation=one.accumulation,
            eval_micro_batch=one.eval_micro_batch,
        )
        == one
    )


def corrected(peak: Peak, of_kin: Peak, traced: Peak) -> Peak:
    """`peak` by formulas, with what a batch changes scaled as the trace of `traced` differs from the formulas of `of_kin`.

    Weights, gradients and optimizer states are counted, not estimated, and stay.
    """
    by_formulas, by_trace = _changing(of_kin.moment), traced.allocated_bytes - _standing(of_kin.moment)
    if by_formulas <= 0 or by_trace <= 0:
        return peak
    factor = by_trace / by_formulas
    moments = tuple(
        Moment(moment.name, {kind: _scaled(kind, size, factor) for kind, size in moment.parts.items()})
        for moment in peak.moments
    )
    return Peak(max(moments, key=lambda moment: moment.bytes), moments, peak.states)


def _scaled(kind: str, size: int, factor: float) -> int:
    return size if kind in STANDING else int(size * factor)


def _standing(moment: Moment) -> int:
    return sum(moment.parts.get(kind, 0) for kind in STANDING)


def _changing(moment: Moment) -> int:
    return moment.bytes - _standing(moment)
