"""What is known beyond the formulas: traces, measurements, and formulas put right by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainwiz.core.estimate.peak import Peak, weight_copies
from trainwiz.core.estimate.states import States, single_states, states_of
from trainwiz.core.estimate.workload import KINDS, Moment, Workload
from trainwiz.core.hardware.machine import Rates
from trainwiz.core.history.measurement import Measurement, same_work
from trainwiz.core.language import mark, tr
from trainwiz.core.tracing.request import TraceRequest, TraceResult


@dataclass(frozen=True, slots=True)
class Evidence:
    """Traces of workloads, and measurements of this machine. Given to make_plan, which stays pure."""

    traces: Mapping[TraceRequest, TraceResult] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    """Of the machine that the plan is for, newest first."""
    kept_rates: tuple[Rates, ...] = ()
    """Of all devices of that machine."""
    rates: Rates | None = None
    """Those of the devices and threads that the plan chose: put in while it is made (core/plan/resolve.py)."""
    waiting: str = ""
    """What the traces are waiting for, or why there are none: shown beside the tier."""

    def trace_of(self, work: Workload) -> TraceResult | None:
        """Without its replay where that is of rows of other lengths or of other shards: moments know neither."""
        request = TraceRequest.of(work) if self.traces else None
        if request is None or request in self.traces:
            return None if request is None else self.traces[request]
        plain = request.without_replay()
        for other, trace in self.traces.items():
            alike = (other.micro_batch, other.length) == (request.micro_batch, request.length)
            if alike and other.without_replay() == plain:
                return replace(trace, replay=None)
        return None


NO_EVIDENCE = Evidence()


LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES = 128 << 20, 4 << 30
"""What no CUDA version needs less or more of: other differences are of cached blocks given back, or of other programs."""


def measured_text(day: str, source: str) -> str:
    if source == "probe":
        return tr("measured on this machine, {day} (probe)", day=day)
    return tr("measured on this machine, {day} (run)", day=day)


def rates_text(rates: Rates) -> str:
    if rates.threads is None:
        return tr("from the speed of this machine, measured {day}", day=rates.day)
    return tr("from the speed of this machine, measured {day}; slower while other programs run", day=rates.day)


def measured_peak(work: Workload, measurements: Sequence[Measurement], expected: int = 0) -> Measurement | None:
    """The fullest of the measurements of the very same settings; None where none says how full it was.

    A run whose batches are usually shorter than the longest may never have met that one: its peak counts only where
    it is beyond what was `expected` (bytes allocated; on a CPU resident).
    """
    same = (
        measurement
        for measurement in measurements
        if ((measurement.host_rss_bytes if work.device == "cpu" else measurement.peak_allocated_bytes) or 0)
        > (0 if _met_the_longest(measurement) else expected)
        and same_work(measurement, work)
    )
    return max(same, key=lambda peak: (peak.peak_allocated_bytes or 0, peak.host_rss_bytes or 0), default=None)


def with_measured_context(work: Workload, measurements: Sequence[Measurement]) -> Workload:
    """`work` with the CUDA context that was measured on this card, by any run; as it is where one was stated or none was.

    Only by runs of one process: what several hold besides includes NCCL's buffers.
    """
    if work.device != "cuda" or work.context_bytes is not None:
        return work
    for measurement in measurements:
        used, reserved = measurement.device_used_bytes, measurement.peak_reserved_bytes
        if measurement.world_size > 1 or used is None or reserved is None:
            continue
        if LEAST_CONTEXT_BYTES <= used - reserved <= MOST_CONTEXT_BYTES:
            source = tr("measured on this machine, {day}", day=measurement.day)
            return replace(work, context_bytes=used - reserved, context_source=source)
    return work


def _met_the_longest(measurement: Measurement) -> bool:
    """A probe begins with batches of full length; in a run they are all so where the usual ones are."""
    usual = (
        measurement.usual_length or measurement.length,
        measurement.usual_target_length or measurement.target_length,
    )
    return measurement.source == "probe" or usual == (measurement.length, measurement.target_length)


STEP = mark("the optimizer step")
"""Name of the step's moment in a trace."""


def traced_peak(work: Workload, trace: TraceResult) -> Peak:
    """The fullest moment of the training step on one device. A trace holds all states in one process."""
    return _peak(work, trace.training)


def traced_evaluation_peak(work: Workload, trace: TraceResult) -> Peak | None:
    """Likewise of evaluating; None where nothing is held out."""
    if work.eval_micro_batch == 0 or not trace.evaluation:
        return None
    return _peak(work, trace.evaluation)


def _peak(work: Workload, traced: Sequence[Moment]) -> Peak:
    states = states_of(work)
    return Peak(tuple(_shared(work, states, moment) for moment in traced), states)


def _shared(work: Workload, states: States, moment: Moment) -> Moment:
    """The moment of one process of several: states by the strategy's rules, all else as it was traced."""
    parts = {kind: moment.parts.get(kind, 0) for kind in KINDS}
    if work.strategy == "single":
        return Moment(moment.name, parts)
    # In the number formats of this strategy: that is how the trace held them.
    alone = single_states(work)
    step = moment.name == STEP
    whole = alone.gradients
    share = 1.0 if whole == 0 else min(1.0, parts["gradients"] / whole)
    parts["weights"] += states.weights - alone.weights + (0 if step else states.gathered)
    parts["optimizer"] = states.optimizer
    if states.flat_gradients:
        begun = share > 0 or states.standing_gradients
        # Half ones come with the layers: none at the start of the backward pass.
        early = moment.name.startswith("the start") or "last layer" in moment.name
        half = states.half_gradients if "backward" in moment.name and not early else 0
        parts["gradients"] = (states.gradients if begun else 0) + half
    else:
        parts["gradients"] = int(states.gradients * share)
    parts["gradients"] += states.buckets
    if "backward" in moment.name:
        parts["gradients"] += states.backward_buffers
    if step:
        parts["temporary"] = states.step_temporary
    elif work.strategy == "fsdp":
        # Weights are gathered in the format that they compute in: autocast copies nothing.
        parts["temporary"] -= weight_copies(work)
    return Moment(moment.name, {kind: max(0, size) for kind, size in parts.items()})


STANDING = ("weights", "gradients", "optimizer")
"""Kinds that no batch changes."""


@dataclass(frozen=True, slots=True)
class Kin:
    work: Workload
    trace: TraceResult


OF_A_BATCH = ("micro_batch", "accumulation", "eval_micro_batch", "strategy", "world_size", "lengths")


def nearest_kin(work: Workload, evidence: Evidence) -> Kin | None:
    """The traced workload that differs from `work` in the sizes of its batches alone, the nearest micro-batch first."""
    request = TraceRequest.of(work) if evidence.traces else None
    if request is None:
        return None

    def distance(pair: tuple[TraceRequest, TraceResult]) -> tuple[float, int, int]:
        other = pair[0]
        sizes = other.micro_batch, request.micro_batch
        steps, rows = other.accumulation - request.accumulation, other.eval_micro_batch - request.eval_micro_batch
        return max(sizes) / min(sizes), abs(steps), abs(rows)

    batch: dict[str, Any] = {name: getattr(request, name) for name in OF_A_BATCH}
    same = (pair for pair in evidence.traces.items() if replace(pair[0], **batch) == request)
    found = min(same, key=distance, default=None)
    if found is None:
        return None
    sizes: dict[str, Any] = {name: getattr(found[0], name) for name in OF_A_BATCH[:3]}
    return Kin(replace(work, **sizes), found[1])


def corrected(peak: Peak, of_kin: Peak, traced: Peak) -> Peak:
    """`peak` by formulas, with what a batch changes scaled as the trace of `traced` differs from the formulas of `of_kin`.

    Weights, gradients and optimizer states are counted, not estimated, and stay.
    """
    standing = sum(of_kin.moment.parts.get(kind, 0) for kind in STANDING)
    by_formulas, by_trace = of_kin.allocated_bytes - standing, traced.allocated_bytes - standing
    if by_formulas <= 0 or by_trace <= 0:
        return peak
    factor = by_trace / by_formulas

    def scaled(kind: str, size: int) -> int:
        return size if kind in STANDING else int(size * factor)

    moments = (
        Moment(moment.name, {kind: scaled(kind, size) for kind, size in moment.parts.items()})
        for moment in peak.moments
    )
    return Peak(tuple(moments), peak.states)
