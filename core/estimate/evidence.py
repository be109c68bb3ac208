"""What is known beyond the formulas: traces of workloads, and what this machine measured of memory and pace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import log, log2
from statistics import geometric_mean
from typing import Any, Literal

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.flops import micro_batch_flops
from trainwiz.core.estimate.peak import Peak, weight_copies
from trainwiz.core.estimate.states import States, single_states, states_of
from trainwiz.core.estimate.time import Range, Rate, StepTime, spread_of, step_time, waits_for_launches
from trainwiz.core.estimate.workload import KINDS, Moment, Workload
from trainwiz.core.hardware.machine import Rates
from trainwiz.core.history.measurement import Measurement, same_kind, same_model, same_step, same_work
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.tracing.request import TraceRequest, TraceResult

OF_A_BATCH = ("micro_batch", "accumulation", "eval_micro_batch", "strategy", "world_size", "lengths")


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
        request = TraceRequest.of(work) if self.traces else None
        return None if request is None else self.traces.get(request)

    def nearest_trace(self, work: Workload) -> tuple[Workload, TraceResult] | None:
        """Of the workload that differs from `work` in its batches or shards alone, the nearest micro-batch first."""
        request = TraceRequest.of(work) if self.traces else None
        if request is None:
            return None
        batch: dict[str, Any] = {name: getattr(request, name) for name in OF_A_BATCH}
        alike = [other for other in self.traces if replace(other, **batch) == request]
        found = min(alike, key=lambda other: abs(log(other.micro_batch / request.micro_batch)), default=None)
        if found is None:
            return None
        sizes: dict[str, Any] = {name: getattr(found, name) for name in OF_A_BATCH[:3]}
        return replace(work, **sizes), self.traces[found]


NO_EVIDENCE = Evidence()


# The memory of a process from a trace, which holds all states in one.

STEP = mark("the optimizer step")
"""Name of the step's moment in a trace."""


def traced_peak(work: Workload, trace: TraceResult) -> Peak:
    """The fullest moment of the training step on one device."""
    states = states_of(work)
    return Peak(tuple(_shared(work, states, moment) for moment in trace.training), states)


def traced_evaluation_peak(work: Workload, trace: TraceResult) -> Peak | None:
    """Likewise of evaluating; None where nothing is held out."""
    if work.eval_micro_batch == 0 or not trace.evaluation:
        return None
    states = states_of(work)
    return Peak(tuple(_shared(work, states, moment) for moment in trace.evaluation), states)


def _shared(work: Workload, states: States, moment: Moment) -> Moment:
    """The moment of one process of several: states by the strategy's rules, all else as it was traced."""
    parts = {kind: moment.parts.get(kind, 0) for kind in KINDS}
    if work.strategy == "single":
        return Moment(moment.name, parts)
    # In the number formats of this strategy: that is how the trace held them.
    alone = single_states(work)
    step, backward = moment.name == STEP, "backward" in moment.name
    share = min(1.0, parts["gradients"] / alone.gradients) if alone.gradients else 1.0
    parts["weights"] += states.weights - alone.weights + (0 if step else states.gathered)
    parts["optimizer"] = states.optimizer
    gradients = int(states.gradients * share)
    if states.flat_gradients:
        gradients = states.gradients if share > 0 or states.standing_gradients else 0
        # Half ones come with the layers: none at the start of the backward pass.
        if backward and not moment.name.startswith("the start") and "last layer" not in moment.name:
            gradients += states.half_gradients
    parts["gradients"] = gradients + states.buckets + states.backward_buffers * backward
    if step:
        parts["temporary"] = states.step_temporary
    elif work.strategy == "fsdp":
        # Weights are gathered in the format that they compute in: autocast copies nothing.
        parts["temporary"] -= weight_copies(work)
    return Moment(moment.name, {kind: max(0, size) for kind, size in parts.items()})


STANDING = ("weights", "gradients", "optimizer")
"""Kinds that no batch changes."""


def corrected(peak: Peak, of_kin: Peak, traced: Peak) -> Peak:
    """`peak` by formulas, with what a batch changes scaled as the trace of `traced` differs from the formulas of `of_kin`.

    Weights, gradients and optimizer states are counted, not estimated, and stay.
    """
    standing = sum(of_kin.moment.parts[kind] for kind in STANDING)
    by_formulas, by_trace = of_kin.allocated_bytes - standing, traced.allocated_bytes - standing
    if by_formulas <= 0 or by_trace <= 0:
        return peak
    factor = by_trace / by_formulas
    scaled = (
        {kind: size if kind in STANDING else int(size * factor) for kind, size in moment.parts.items()}
        for moment in peak.moments
    )
    moments = tuple(Moment(moment.name, parts) for moment, parts in zip(peak.moments, scaled, strict=True))
    return Peak(moments, peak.states)


# What this machine measured of memory.

LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES = 128 << 20, 4 << 30
"""What no CUDA version needs less or more of: other differences are of cached blocks given back, or of other programs."""


def measured_text(day: str, source: str) -> str:
    if source == "probe":
        return tr("measured on this machine, {day} (probe)", day=day)
    return tr("measured on this machine, {day} (run)", day=day)


def measured_peak(work: Workload, measurements: Sequence[Measurement], expected: int = 0) -> Measurement | None:
    """The fullest of the measurements of the very same settings; None where none says how full it was.

    A run whose batches are usually shorter than the longest may never have met that one: its peak counts only where
    it is beyond what was `expected` (bytes allocated; on a CPU resident).
    """

    def held(measured: Measurement) -> int:
        return (measured.host_rss_bytes if work.device == "cpu" else measured.peak_allocated_bytes) or 0

    same = (
        measured
        for measured in measurements
        if held(measured) > (0 if _met_the_longest(measured) else expected) and same_work(measured, work)
    )
    return max(same, key=held, default=None)


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


# What it measured of pace: the very same step; or other steps by the same kernels, each over its formula.

BETWEEN_RUNS = {"cuda": 1.06, "mps": 1.10, "cpu": 1.15}
"""Factor by which a run may differ from the one before it on the same machine: clocks, heat, other programs."""
COMPARED = 5
"""Measurements, the newest ones, whose disagreement widens the range."""
CARRIED = 1.2
"""Factor by which measured over formula differs from one model or batch to another on one device, by the same kernels."""
FOR_EACH_DOUBLING = 1.03
"""The same for each doubling of what a micro-batch computes."""
START_FACTOR = 1.5
"""Reading model and data is as fast as the disk's cache is warm."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One optimizer step by measurement; `step.likely` is the median of the very same step, or the formula put right."""

    step: Range
    basis: Literal["probe", "history", "others"]
    text: str
    factor: float | None
    """Measured over formula; what else runs on the device may be scaled by it. None without a formula."""


def measured_step(
    work: Workload, usual: Workload, planned: StepTime | None, measurements: Sequence[Measurement], rate: Rate | None
) -> MeasuredStep | None:
    """The step of `work`, or None where nothing like it was measured.

    `usual` is `work` at the lengths of a usual batch, `planned` its step by formula (None: a card of no catalogue);
    `measurements` are of the plan's devices (of_devices), newest first. The very same settings with rows of such lengths
    give the measured 10 to 90 % of the steps, widened by what runs differ by.
    """
    lengths = (usual.length, usual.target_length)
    same = [
        measured for measured in measurements if same_step(measured, work) and _lengths(measured, usual) == lengths
    ][:COMPARED]
    if not same:
        return None if planned is None or rate is None else _carried_step(usual, planned, measurements, rate)
    newest = same[0]
    apart = (max(newest.step_s / other.step_s, other.step_s / newest.step_s) for other in same)
    # Its steps spread: 90 % over median, median over 10 %.
    spread = max(newest.step_high_s / newest.step_s, newest.step_s / newest.step_low_s)
    # Even around the median, so that Range.likely (the geometric mean) is what was measured.
    step = Range.around(newest.step_s, max(spread, BETWEEN_RUNS.get(work.device, 1.15), *apart))
    basis: Literal["probe", "history"] = "probe" if newest.source == "probe" else "history"
    factor = None if planned is None else newest.step_s / planned.step.likely
    return MeasuredStep(step, basis, measured_text(newest.day, newest.source), factor)


def _carried_step(
    usual: Workload, planned: StepTime, measurements: Sequence[Measurement], rate: Rate
) -> MeasuredStep | None:
    """By other batches and settings of this model, else by other models. None where nothing of the same kind was measured,
    or where it would narrow nothing.

    The factor is a mean of measured over formula; its spread is at least CARRIED, and what the measurements are apart.
    """
    own = [measured for measured in measurements if same_model(measured, usual)]
    found: list[tuple[float, float, str]] = []
    waits = waits_for_launches(usual, rate)
    for measured in own or measurements:
        # By the clock alone a CPU's step says as much of the programs beside it.
        timed = measured.own_step_s if usual.device == "cpu" and not own else measured.step_s
        work = _measured_work(measured, usual) if own or same_kind(measured, usual) else None
        if work is None or timed is None or len(found) == COMPARED:
            continue
        # On a CPU families are apart in more than their size: after a run of ESM-2 a small Qwen2 was planned to take a fifth
        # of what it took. How fast Python launches says nothing of how fast a GPU computes: after a smoke run of a tiny
        # model on an H100 a step of 42 s was planned to take 64 to 236.
        other_family = usual.device == "cpu" and work.architecture.model_type != usual.architecture.model_type
        if not other_family and waits_for_launches(work, rate) == waits:
            away = abs(log2(micro_batch_flops(work) / micro_batch_flops(usual)))
            found.append((timed / step_time(work, rate).step.likely, away, measured.day))
    if not found:
        return None
    ratios, distances, days = zip(*found, strict=True)
    factor = geometric_mean(ratios)
    spread = max(CARRIED, max(ratios) / factor, factor / min(ratios)) * FOR_EACH_DOUBLING ** min(distances)
    if spread > spread_of(usual, rate) and 1 / spread < factor < spread:
        return None
    text = trn(
        "formula × {factor}, from one other measurement on this machine ({day})",
        "formula × {factor}, from {n} other measurements on this machine ({day})",
        len(found),
        factor=f"{factor:.2g}",
        day=max(days),
    )
    return MeasuredStep(Range.around(planned.step.likely * factor, spread), "others", text, factor)


def _measured_work(measured: Measurement, usual: Workload) -> Workload | None:
    """None for a model that cannot be read."""
    architecture = _architecture(measured.config, measured.task) if measured.config else usual.architecture
    if architecture is None:
        return None
    length, target_length = _lengths(measured, usual)
    return replace(
        usual,
        architecture=architecture,
        task=measured.task,
        micro_batch=measured.micro_batch,
        accumulation=measured.accumulation,
        length=length,
        target_length=target_length,
        checkpointing=measured.checkpointing,
        optimizer=measured.optimizer,
        lora_rank=measured.lora_rank,
        lora_targets=measured.lora_targets,
        loss_chunk=measured.loss_chunk,
    )


def _lengths(measured: Measurement, usual: Workload) -> tuple[int, int]:
    target_length = measured.usual_target_length or measured.target_length or usual.target_length
    return measured.usual_length or measured.length, target_length


@lru_cache(maxsize=64)
def _architecture(config: str, task: str) -> Architecture | None:
    try:
        return read_architecture(json.loads(config), task)[0]
    except (ValueError, TypeError, AttributeError):
        return None


def measured_start(work: Workload, measurements: Sequence[Measurement]) -> Range | None:
    """Seconds of a run that no step takes (imports, model, data), from whole runs of the same model."""
    runs = (one.start_s for one in measurements if one.source == "run" and one.start_s and same_model(one, work))
    seconds = [start_s for start_s in runs if start_s][:COMPARED]
    return Range(min(seconds) / START_FACTOR, max(seconds) * START_FACTOR) if seconds else None
