"""The memory of a run: from a Workload, and what is known of it, to a peak with its interval."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainwiz.core.estimate.evidence import (
    NO_EVIDENCE,
    STANDING,
    Evidence,
    corrected,
    measured_peak,
    measured_text,
    traced_evaluation_peak,
    traced_peak,
    with_measured_context,
)
from trainwiz.core.estimate.peak import (
    VARIED,
    Peak,
    beyond,
    evaluation_peak,
    generation_peak,
    lengths_guessed,
    overheads,
    peak_of,
)
from trainwiz.core.estimate.workload import KINDS, MemoryVerdict, Tier, Workload, moment_text
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr
from trainwiz.core.tracing.request import Replay, TraceResult

FULL_TRACE_SPREAD = 0.03
"""A traced peak against a measured one: what kernels take inside, and other versions of the libraries."""
CORRECTED_SPREAD = 0.05
"""Formulas put right by a trace at another batch."""
FORMULA_SPREAD = 0.05
"""The analytic peak against full traces: nine of ten within it, of models and families that it has a reader for."""
APPROXIMATE_SPREAD = 0.2
"""The same for families without a reader of their own: nine of ten within 11 %, the worst 21 % low."""
MEASURED_SPREAD = 0.04
"""From one run to the next, in batches that are padded a little differently."""


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
    safe_bytes: int
    """With so much free it fits also when all goes against it. Not more than `high_bytes`: torch gives cached blocks
    back before it fails."""
    breakdown: dict[str, int]
    peak_moment: str
    peak: Peak | None
    tier: Tier = "analytic"
    basis: str = "formulas"
    """Where the figures come from, in words."""

    def verdict(self, capacity_bytes: int | None) -> MemoryVerdict | None:
        """`does_not_fit` when even a perfect allocator fails; `tight` when it fits only if all goes well."""
        if capacity_bytes is None or self.peak is None:
            return None
        if self.needed_bytes > capacity_bytes:
            return "does_not_fit"
        return "tight" if self.safe_bytes > capacity_bytes else "fits"

    def on_card(self, capacity_bytes: int | None) -> MemoryEstimate:
        """On a card of this memory: what is cached beyond it is given back, so nvidia-smi never shows more.

        Where more than that is needed, the figures are those of a card that would hold it and no cached blocks.
        """
        if capacity_bytes is None:
            return self
        most = max(capacity_bytes, self.needed_bytes)
        used = min(self.device_used_bytes, most)
        return replace(
            self,
            reserved_bytes=max(self.allocated_bytes, self.reserved_bytes - (self.device_used_bytes - used)),
            device_used_bytes=used,
            low_bytes=min(self.low_bytes, used),
            high_bytes=max(used, min(self.high_bytes, max(capacity_bytes, self.safe_bytes))),
        )


def estimate_memory(work: Workload, evidence: Evidence = NO_EVIDENCE) -> MemoryEstimate:
    """Peak memory of one training process on its device; for a CPU the device is host RAM.

    Measured with the very same settings, where `evidence` has that; else from a trace of this very
    workload; else from formulas, which a trace of it in another batch puts right.
    """
    work = with_measured_context(work, evidence.measurements)
    estimate = _estimated(work, evidence, peak_of, traced_peak)
    assert estimate is not None  # there is always a step
    if not evidence.measurements:
        return estimate
    expected = estimate.device_used_bytes if work.device == "cpu" else estimate.allocated_bytes
    measured = measured_peak(work, evidence.measurements, expected)
    return estimate if measured is None else _measured(work, estimate, measured)


def _estimated(
    work: Workload,
    evidence: Evidence,
    by_formulas: Callable[[Workload], Peak | None],
    by_trace: Callable[[Workload, TraceResult], Peak | None],
) -> MemoryEstimate | None:
    """From a trace of `work`, or formulas, put right by the nearest trace where there is one."""
    trace = evidence.trace_of(work)
    if trace is not None and (traced := by_trace(work, trace)):
        return _estimate(work, traced, FULL_TRACE_SPREAD, "traced", tr("full trace"), trace.replay)
    peak, nearest = by_formulas(work), evidence.nearest_trace(work)
    if peak is None:
        return None
    of_kin, traced = (by_formulas(nearest[0]), by_trace(*nearest)) if nearest else (None, None)
    if nearest and of_kin is not None and traced is not None:
        micro_batch = nearest[0].micro_batch
        basis = tr("formulas, corrected by a full trace at micro-batch {micro_batch}", micro_batch=micro_batch)
        return _estimate(work, corrected(peak, of_kin, traced), CORRECTED_SPREAD, "analytic", basis)
    return _from_formulas(work, peak)


def estimate_evaluation(work: Workload, evidence: Evidence = NO_EVIDENCE) -> MemoryEstimate | None:
    """The same while held-out rows are evaluated or text is generated, whichever takes more; None where there are none."""
    work = with_measured_context(work, evidence.measurements)
    evaluating = _estimated(work, evidence, evaluation_peak, traced_evaluation_peak)
    generating = generation_peak(work)
    if evaluating is None or generating is None:
        return evaluating
    return max(evaluating, _from_formulas(work, generating), key=lambda one: one.allocated_bytes)


def _from_formulas(work: Workload, peak: Peak) -> MemoryEstimate:
    if work.architecture.approximate:
        return _estimate(work, peak, APPROXIMATE_SPREAD, "analytic", tr("formulas for an unknown model family"))
    return _estimate(work, peak, FORMULA_SPREAD, "analytic", tr("formulas"))


def _estimate(
    work: Workload, peak: Peak, error: float, tier: Tier, basis: str, replay: Replay | None = None
) -> MemoryEstimate:
    """`error`: how far off `peak` may be, as a share; `replay`: of this very work."""
    beside, replayed = overheads(work), replay is not None
    allocated = peak.allocated_bytes + beside.workspace
    guessed = lengths_guessed(work, replayed=replayed)
    likely = most = (VARIED if guessed else beside.reserved).likely
    least, held = beside.reserved.low, beside.reserved.high
    if work.longest_of > 1:
        # A step that is arranged begins with the longest of its many rows: the first one is nearly as long as any. Seen with
        # ESM-2 650M on an H100: reserved was 1.01 of allocated.
        likely = beside.reserved.likely
    if replay is not None:
        # Of one length where the others are not known: no more than a beginning.
        likely = max(replay.factor(replay.likely), likely * guessed)
        most = max(replay.factor(replay.high), most * guessed)
        least, held = min(least, replay.factor(replay.low)), max(held, replay.factor(replay.held))
    high = most * (1 + beyond(work, replayed=replayed))
    reserved, above = int(allocated * likely), int(allocated * (1 + error))
    context, spread = beside.context, beside.spread
    if work.context_source and work.device == "cuda":
        basis = tr("{basis}; CUDA context {source}", basis=basis, source=work.context_source)
    breakdown = {**peak.moment.parts, "context": context}
    breakdown["temporary"] += beside.workspace
    return MemoryEstimate(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_used_bytes=reserved + context,
        low_bytes=int(allocated * (1 - error) * min(least, likely)) + context - spread,
        high_bytes=int(above * high) + context + spread,
        needed_bytes=allocated + context,
        safe_bytes=int(above * min(high, held)) + context + spread,
        breakdown=breakdown,
        peak_moment=moment_text(peak.moment.name),
        peak=peak,
        tier=tier,
        basis=basis,
    )


def _measured(work: Workload, estimate: MemoryEstimate, measured: Measurement) -> MemoryEstimate:
    beside = overheads(work)
    if work.device == "cpu" or measured.peak_allocated_bytes is None:
        # Of a process on a CPU only its resident memory is known.
        used = measured.host_rss_bytes or estimate.device_used_bytes
        reserved = max(0, used - beside.context)
        allocated = int(reserved / beside.reserved.likely)
    else:
        allocated = measured.peak_allocated_bytes
        reserved = measured.peak_reserved_bytes or int(allocated * beside.reserved.likely)
        used = measured.device_used_bytes or reserved + beside.context
    context = max(0, used - reserved)
    low, high = int(used * (1 - MEASURED_SPREAD)), int(used * (1 + MEASURED_SPREAD))
    return replace(
        estimate,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_used_bytes=used,
        low_bytes=low,
        high_bytes=high,
        needed_bytes=allocated + context,
        safe_bytes=min(high, int(allocated * (1 + MEASURED_SPREAD) * beside.reserved.high) + context),
        breakdown={**_rescaled(estimate.breakdown, allocated), "context": context},
        tier="measured",
        basis=measured_text(measured.day, measured.source),
    )


def _rescaled(breakdown: dict[str, int], allocated: int) -> dict[str, int]:
    """The parts of a peak of `allocated` bytes: what a batch changes gives way first."""
    standing = sum(breakdown[kind] for kind in STANDING)
    kinds = [kind for kind in KINDS if allocated < standing or kind not in STANDING]
    factor = (allocated - (0 if allocated < standing else standing)) / max(1, sum(breakdown[kind] for kind in kinds))
    parts = {kind: int(breakdown[kind] * factor) if kind in kinds else breakdown[kind] for kind in KINDS}
    parts["temporary"] += allocated - sum(parts.values())
    return parts


def worse_verdict(one: MemoryVerdict | None, other: MemoryVerdict | None) -> MemoryVerdict | None:
    """Of two moments of one run; None where either is not known."""
    order: tuple[MemoryVerdict, ...] = ("fits", "tight", "does_not_fit")
    return None if one is None or other is None else max(one, other, key=order.index)


def unknown_memory() -> MemoryEstimate:
    """For a model that the estimator does not know: zeros, and no verdict."""
    empty = dict.fromkeys((*KINDS, "context"), 0)
    return MemoryEstimate(0, 0, 0, 0, 0, 0, 0, empty, tr("unknown"), None)


def largest_micro_batch(work: Workload, capacity_bytes: int, ceiling: int, evidence: Evidence = NO_EVIDENCE) -> int:
    """The largest micro-batch up to `ceiling` that fits with its upper estimate; 0 when 1 does not fit.

    When not even 1 fits that safely, 1 is returned as long as a perfect allocator would fit it.
    """

    def safe_bytes(micro_batch: int) -> int:
        return estimate_memory(work.with_micro_batch(micro_batch), evidence).safe_bytes

    largest = bisect_right(range(1, ceiling + 1), capacity_bytes, key=safe_bytes)
    fits_at_all = estimate_memory(work.with_micro_batch(1), evidence).needed_bytes <= capacity_bytes
    return largest or int(fits_at_all)
