"""The memory of a run: from a Workload, and what is known of it, to a peak with its interval."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.peak import KINDS, Peak, evaluation_peak, peak_of
from trainwiz.core.estimate.traced import traced_evaluation_peak, traced_peak
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.result import MemoryVerdict, Tier
from trainwiz.core.tracing.result import TraceResult

GIB = 2**30

CONTEXT_BYTES = int(0.45 * GIB)
"""CUDA context and library handles of one process: 0.3 to 0.7 GB on today's CUDA."""
CONTEXT_SPREAD_BYTES = int(0.2 * GIB)
PROCESS_BYTES = int(0.75 * GIB)
"""Resident memory of a CPU training process before its model: torch, transformers and their allocator."""
PROCESS_SPREAD_BYTES = int(0.25 * GIB)
NCCL_BYTES = int(0.35 * GIB)
"""Buffers of NCCL in each process of several: 0.2 to 0.5 GB."""
RESERVED_FACTOR = 1.07
"""Reserved over allocated; replays of the caching allocator gave 1.01 to 1.21."""
RESERVED_LOW = 1.01
RESERVED_HIGH = 1.15
FORMULA_SPREAD = 0.05
"""The analytic peak against full traces that no formula was settled on: 19 of 20 within 5 %, the worst 6.1 % low (tests)."""
TRACE_SPREAD = 0.02


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on the fullest device at the fullest moment.

    `allocated_bytes` decides out-of-memory (torch frees cached blocks before it fails);
    `device_used_bytes` is what nvidia-smi shows, and what `low_bytes` to `high_bytes` is about.
    """

    allocated_bytes: int
    reserved_bytes: int
    device_used_bytes: int
    low_bytes: int
    high_bytes: int
    needed_bytes: int
    """The least that must be free: allocated and context."""
    breakdown: dict[str, int]
    peak_moment: str
    peak: Peak | None
    tier: Tier = "analytic"
    basis: str = "formulas"
    """Where the figures come from, in words."""

    def verdict(self, capacity_bytes: int | None) -> MemoryVerdict | None:
        """`does_not_fit` when even a perfect allocator fails; `tight` when the upper estimate does."""
        if capacity_bytes is None or self.peak is None:
            return None
        if self.needed_bytes > capacity_bytes:
            return "does_not_fit"
        return "tight" if self.high_bytes > capacity_bytes else "fits"


def estimate_memory(work: Workload, evidence: Evidence = NO_EVIDENCE) -> MemoryEstimate:
    """Peak memory of one training process on its device; for a CPU the device is host RAM.

    From a trace of this very workload where `evidence` has one, else from formulas.
    """
    trace = evidence.trace_of(work)
    return _estimate(work, peak_of(work), None) if trace is None else _estimate(work, traced_peak(work, trace), trace)


def estimate_evaluation(work: Workload, evidence: Evidence = NO_EVIDENCE) -> MemoryEstimate | None:
    """The same while held-out rows are evaluated or text is generated; None where there are none."""
    trace = evidence.trace_of(work)
    traced = traced_evaluation_peak(work, trace) if trace is not None else None
    if traced is not None:
        return _estimate(work, traced, trace)
    peak = evaluation_peak(work)
    return None if peak is None else _estimate(work, peak, None)


def _estimate(work: Workload, peak: Peak, trace: TraceResult | None) -> MemoryEstimate:
    allocated = peak.allocated_bytes
    error = FORMULA_SPREAD if trace is None else TRACE_SPREAD
    if work.device == "cpu":
        context, spread, factors = PROCESS_BYTES, PROCESS_SPREAD_BYTES, (1.0, 1.1, 1.4)
    else:
        context, spread, factors = CONTEXT_BYTES, CONTEXT_SPREAD_BYTES, (RESERVED_LOW, RESERVED_FACTOR, RESERVED_HIGH)
        if work.world_size > 1:
            context += NCCL_BYTES
    reserved = int(allocated * factors[1])
    parts = {kind: peak.moment.parts.get(kind, 0) for kind in KINDS}
    return MemoryEstimate(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_used_bytes=reserved + context,
        low_bytes=int(allocated * (1 - error) * factors[0]) + context - spread,
        high_bytes=int(allocated * (1 + error) * factors[2]) + context + spread,
        needed_bytes=allocated + context,
        breakdown={**parts, "context": context},
        peak_moment=peak.moment.name,
        peak=peak,
        tier="analytic" if trace is None else "traced",
        basis="formulas" if trace is None else _basis(trace),
    )


def _basis(trace: TraceResult) -> str:
    name = "full trace" if trace.tier == "full" else "traced by layers"
    return f"{name} ({trace.note})" if trace.note else name


def worse_verdict(one: MemoryVerdict | None, other: MemoryVerdict | None) -> MemoryVerdict | None:
    """Of two moments of one run; None where either is not known."""
    order: tuple[MemoryVerdict, ...] = ("fits", "tight", "does_not_fit")
    return None if one is None or other is None else max(one, other, key=order.index)


def unknown_memory() -> MemoryEstimate:
    """For a model that the estimator does not know: zeros, and no verdict."""
    empty = dict.fromkeys((*KINDS, "context"), 0)
    return MemoryEstimate(0, 0, 0, 0, 0, 0, empty, "not known", None)


def largest_micro_batch(work: Workload, capacity_bytes: int, ceiling: int, evidence: Evidence = NO_EVIDENCE) -> int:
    """The largest micro-batch up to `ceiling` that fits with its upper estimate; 0 when 1 does not fit.

    When not even 1 fits that safely, 1 is returned as long as a perfect allocator would fit it.
    """
    low, high = 0, 1
    while high <= ceiling and _fits(work, high, capacity_bytes, evidence):
        low, high = high, high * 2
    high = min(high, ceiling + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(work, middle, capacity_bytes, evidence):
            low = middle
        else:
            high = middle
    if low == 0 and estimate_memory(work.with_micro_batch(1), evidence).needed_bytes <= capacity_bytes:
        return 1
    return low


def _fits(work: Workload, micro_batch: int, capacity_bytes: int, evidence: Evidence) -> bool:
    return estimate_memory(work.with_micro_batch(micro_batch), evidence).high_bytes <= capacity_bytes
