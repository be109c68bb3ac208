"""Pace, time and energy of a resolved run; how often it saves, evaluates and generates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import generates_at_saves
from trainwiz.core.data.lengths import DEFAULT_MOST
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.flops import Cost, Network, cost_of, network_bytes, network_time_s
from trainwiz.core.estimate.host import disk_needs, power_of
from trainwiz.core.estimate.time import (
    COMPILED_START,
    Range,
    Rate,
    cpu_rate,
    evaluation_time,
    generation_time,
    gpu_rate,
    measured_start,
    measured_step,
    saving_time,
    share_of_peak,
    start_time,
    step_time,
    verdict_of,
)
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import TimeVerdict, Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import of_devices
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.result import BatchPlan, TimePlan
from trainwiz.core.plan.rows import PaddedCost, lengths_of

# How often a run saves, evaluates and generates: what core/training/evaluation.py and generation.py do.


@dataclass(frozen=True, slots=True)
class Counts:
    """Over the whole run, the last step included."""

    saves: int
    evaluations: int
    generations: int


def count_events(config: RunConfig, steps: int, epochs: float | None) -> Counts:
    """`epochs` is None where the rows are not known; an evaluation at each epoch then counts as the last one."""
    evaluation = config.evaluation
    save_every = config.checkpoint.every_steps or steps
    at_epochs = _ends_of_epochs(steps, epochs)
    at_saves = _Every(save_every)
    every = evaluation.every_steps
    if every is None and not evaluation.every_epoch:
        every = save_every
    evaluates = [_Every(every)] if every else []
    evaluates += [at_epochs] if evaluation.every_epoch else []
    evaluates += [at_saves] if config.checkpoint.keep_best else []
    generates = {"evaluation": evaluates, "epoch": [at_epochs], "end": []}[evaluation.generate_at]
    if generates_at_saves(config):
        generates = [*generates, at_saves]
    return Counts(
        saves=_moments(steps, [at_saves]) if config.mode.saves else 0,
        evaluations=_moments(steps, evaluates),
        generations=_moments(steps, generates) if evaluation.generate else 0,
    )


@dataclass(frozen=True, slots=True)
class _Every:
    """Each multiple of `steps`; or, with `times`, so many moments before the end that fall together with no others."""

    steps: int
    times: int | None = None


def _ends_of_epochs(steps: int, epochs: float | None) -> _Every:
    if not epochs:
        return _Every(steps)
    each = steps / epochs
    return _Every(int(each)) if each >= 1 and each.is_integer() else _Every(steps, math.ceil(epochs) - 1)


def _moments(steps: int, rules: Sequence[_Every]) -> int:
    """Steps of a run that one rule or several name, and its last step. Multiples of several count once."""
    inside = steps - 1
    apart = sum(rule.times for rule in rules if rule.times is not None)
    intervals = {rule.steps for rule in rules if rule.times is None}
    together = 0
    for size in range(1, len(intervals) + 1):
        for some in combinations(intervals, size):
            together += (-1) ** (size + 1) * (inside // math.lcm(*some))
    return 1 + apart + together


# The pace of a resolved run: one optimizer step, by what this machine measured or by formula.


@dataclass(frozen=True, slots=True)
class Pace:
    """One optimizer step, and where its time comes from."""

    step: Range
    start: Range
    """Of the whole run: launcher, imports, model, data, closing."""
    fraction_of_peak: float | None
    verdict: TimeVerdict | None
    basis: Literal["roofline", "probe", "history"] = "roofline"
    text: str = "roofline"
    calibration: float | None = None
    """Measured over formula, where this device was measured with this model."""


def rate_of(devices: Devices, config: RunConfig) -> Rate | None:
    """What one process computes at best; None for a card that the catalogue does not know."""
    engine = config.engine
    if devices.device == "cpu":
        rate = cpu_rate(engine.cpu_threads or 1)
    elif devices.spec is None:
        return None
    else:
        rate = gpu_rate(devices.spec, engine.precision or "fp32", bool(engine.tf32))
    return rate if devices.nodes == 1 else replace(rate, network=network_of(config).bytes_per_s)


def network_of(config: RunConfig) -> Network:
    return Network.of(config.planning.network_gbit_s)


def pace_of(
    machine: Machine,
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    usual: Workload | None,
    rate: Rate | None,
    evidence: Evidence = NO_EVIDENCE,
    computed: PaddedCost | None = None,
) -> Pace | None:
    """Measured here where it was, else by roofline with the counts of a trace or of the formulas; None where nothing is known.

    `usual` is `work` at the lengths of a usual batch, `computed` what its micro-batches really ask for.
    """
    if work is None or usual is None:
        return None
    engine = config.engine
    # Of one machine each: what the network adds to a step was measured by none of them.
    measurements = of_devices(
        evidence.measurements if devices.nodes == 1 else (),
        machine,
        devices.device,
        devices.gpus,
        engine.cpu_threads,
        bool(engine.tf32),
    )
    start = measured_start(work, measurements)
    begin = start[0] if start is not None else start_time(usual)
    # A measured start has none of the first step in it, which is where it compiles.
    begin = begin + COMPILED_START if engine.compile else begin
    measured = measured_step(work, usual, measurements, rate)
    if measured is not None:
        share = verdict = None
        if rate is not None:
            share = share_of_peak(
                usual, rate, usual.tokens * usual.accumulation * usual.world_size / measured.step.likely
            )
            verdict = verdict_of(share, on_cpu=usual.device == "cpu")
        return Pace(measured.step, begin, share, verdict, measured.basis, measured.text, measured.calibration)
    if rate is None:
        return None
    mean = computed.cost if computed is not None else cost_of(usual)
    each = step_time(usual, rate, _traced_cost(work, mean, evidence))
    return Pace(each.step, begin, each.fraction_of_peak, each.verdict)


def pace_gains(usual: Workload, rate: Rate | None, computed: PaddedCost | None) -> tuple[float, float] | None:
    """How many times the pace of the rows as drawn the run has, and would have without padding; by roofline."""
    if rate is None or computed is None:
        return None
    own, drawn, unpadded = (
        step_time(usual, rate, cost).step.likely for cost in (computed.cost, computed.drawn, computed.unpadded)
    )
    return drawn / own, drawn / unpadded


def _traced_cost(work: Workload, mean: Cost, evidence: Evidence) -> Cost:
    """`mean`, the mean cost of a micro-batch by formulas, corrected by what a trace of `work` counted where there is one."""
    trace = evidence.trace_of(work)
    if trace is None or min(trace.flops, trace.moved_bytes, trace.kernels) <= 0:
        return mean
    return Cost(trace.flops, trace.moved_bytes, float(trace.kernels)).scaled(mean, cost_of(work))


# The time and the energy of a resolved run as a plan shows them.

CALIBRATED_SPREAD = 1.5
"""Factor up and down of evaluation and generation where training was measured on the same device."""
FORWARD_LOW, FORWARD_HIGH = 0.25, 0.5
"""Share of a training step that its forward pass takes, with and without checkpointing, the optimizer left out."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long the run is."""

    steps: int | None
    epochs: float | None


def plan_time(
    config: RunConfig,
    devices: Devices,
    work: Workload | None,
    rate: Rate | None,
    pace: Pace | None,
    length: Length,
    data: DataSummary | None,
    batch: BatchPlan,
    gains: tuple[float, float] | None = None,
) -> TimePlan:
    """Time of a step and of the whole run, as a range, and its energy; `work` has the lengths of a usual batch, `gains`
    are what its order has over rows as drawn, and what it could have."""
    steps = length.steps
    total_tokens = None if steps is None else steps * batch.effective_tokens
    real_tokens = None if steps is None or batch.real_tokens is None else steps * batch.real_tokens
    if work is None or pace is None:
        return _unknown_time(length, total_tokens, real_tokens)
    step, start = pace.step, pace.start
    total = evaluation = generation = saving = None
    if steps is not None:
        counts = count_events(config, steps, length.epochs)
        evaluation, generation = _evaluations(config, work, rate, pace, data, counts, batch)
        # The last save writes the final model too.
        disk = disk_needs(work, 1)
        saving = saving_time(disk.checkpoint_bytes).times(counts.saves)
        if config.mode.saves:
            saving = saving + saving_time(disk.final_bytes)
        total = step.times(steps) + evaluation + generation + saving + start
    energy = _energy(devices, total, pace)
    return TimePlan(
        step_s=step.likely,
        step_low_s=step.low,
        step_high_s=step.high,
        steps=steps,
        epochs=length.epochs,
        total_s=total.likely if total else None,
        total_low_s=total.low if total else None,
        total_high_s=total.high if total else None,
        evaluation_s=evaluation.likely if evaluation else None,
        saving_s=saving.likely if saving else None,
        tokens_per_s=(batch.padded_tokens or batch.effective_samples * work.length) / step.likely,
        fraction_of_peak=pace.fraction_of_peak,
        basis=pace.basis,
        verdict=pace.verdict,
        start_low_s=start.low,
        start_high_s=start.high,
        generation_s=generation.likely if generation else None,
        basis_text=pace.text,
        total_tokens=total_tokens,
        real_tokens=real_tokens,
        energy_low_kwh=energy.low if energy else None,
        energy_high_kwh=energy.high if energy else None,
        energy_cost_low=_cost(config, energy.low) if energy else None,
        energy_cost_high=_cost(config, energy.high) if energy else None,
        currency=config.planning.currency,
        **_network(config, devices, work),
        pace_gain=gains[0] if gains else None,
        possible_pace_gain=gains[1] if gains else None,
    )


def _network(config: RunConfig, devices: Devices, work: Workload) -> dict[str, Any]:
    """What a step moves between the machines; nothing for one."""
    if devices.nodes == 1:
        return {}
    network = network_of(config)
    return {
        "network_bytes": int(network_bytes(work)),
        "network_high_s": network_time_s(work, network),
        "network_gbit_s": network.gbit_s,
        "network_assumed": network.assumed,
    }


def _evaluations(
    config: RunConfig,
    work: Workload,
    rate: Rate | None,
    pace: Pace,
    data: DataSummary | None,
    counts: Counts,
    batch: BatchPlan,
) -> tuple[Range, Range]:
    """(evaluating, generating) over the whole run."""
    rows = held_out_rows(config, data)
    if rate is None:
        # A card of no catalogue that was measured: the forward passes of so many rows.
        each = pace.step.times(rows / batch.effective_samples)
        forward = Range(FORWARD_LOW * each.low, FORWARD_HIGH * each.high)
        return forward.times(counts.evaluations), Range(0.0, 0.0)
    evaluation = evaluation_time(work, rate, rows).times(counts.evaluations)
    generation = Range(0.0, 0.0)
    if counts.generations:
        some = min(rows, config.evaluation.generation_rows or rows)
        generation = generation_time(work, rate, some, _long_target(data)).times(counts.generations)
    return _calibrated(evaluation, pace.calibration), _calibrated(generation, pace.calibration)


def _calibrated(time: Range, calibration: float | None) -> Range:
    """`time` by formula, moved by what training measured over its own formula."""
    if calibration is None or time.low <= 0:
        return time
    likely = time.likely * calibration
    spread = min(CALIBRATED_SPREAD, time.high / time.likely)
    return Range(likely / spread, likely * spread)


def _energy(devices: Devices, total: Range | None, pace: Pace) -> Range | None:
    """kWh of the whole run; None without GPUs, whose power alone is known."""
    limits = [gpu.power_limit_w or getattr(spec_of(gpu), "power_w", None) for gpu in devices.gpus]
    power = power_of(limits, devices.nodes, idle=pace.verdict == "idle")
    return None if power is None or total is None else Range(*power.energy_kwh(total))


def _cost(config: RunConfig, energy_kwh: float) -> float | None:
    price = config.planning.energy_price_per_kwh
    return None if price is None else price * energy_kwh


def held_out_rows(config: RunConfig, data: DataSummary | None) -> int:
    """Rows of one evaluation, as far as they are known."""
    if data is not None:
        return data.validation_rows
    if config.data.validation_sources:
        return 0
    # Of rows that are not known, as many are held out as of a large set.
    return DEFAULT_MOST if config.data.validation_rows is None else config.data.validation_rows


def _long_target(data: DataSummary | None) -> int | None:
    """The length that nine of ten targets keep to: about the longest text of a batch of like length."""
    lengths = lengths_of(data.target_lengths) if data is not None else None
    return None if lengths is None else lengths.quantile(9, 10)


def _unknown_time(length: Length, total_tokens: int | None, real_tokens: int | None) -> TimePlan:
    return TimePlan(
        step_s=None,
        step_low_s=None,
        step_high_s=None,
        steps=length.steps,
        epochs=length.epochs,
        total_s=None,
        total_low_s=None,
        total_high_s=None,
        evaluation_s=None,
        saving_s=None,
        tokens_per_s=None,
        fraction_of_peak=None,
        basis="roofline",
        verdict=None,
        total_tokens=total_tokens,
        real_tokens=real_tokens,
    )
