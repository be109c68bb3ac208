"""Pace, time and energy of a resolved run; how often it saves, evaluates and generates."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import generates_at_saves, ranks_checkpoints
from trainwiz.core.data.lengths import DEFAULT_MOST
from trainwiz.core.data.prompts import MOST_S as ANSWERS_MOST_S
from trainwiz.core.data.prompts import names_prompts
from trainwiz.core.estimate.evidence import measured_start, measured_step
from trainwiz.core.estimate.flops import ASSUMED_GBIT_S, cost_of, network_bytes, network_bytes_per_s
from trainwiz.core.estimate.host import disk_needs, energy_kwh
from trainwiz.core.estimate.time import (
    COMPILED_START,
    SPREAD,
    Range,
    Rate,
    cpu_rate,
    evaluation_time,
    generation_time,
    gpu_rate,
    saving_time,
    start_time,
    step_time,
    verdict_of,
)
from trainwiz.core.estimate.workload import TimeVerdict, Workload
from trainwiz.core.history.measurement import of_devices
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan, TimePlan
from trainwiz.core.plan.rows import lengths_of
from trainwiz.core.plan.workload import answering

# How often a run saves, evaluates and generates: what core/training/evaluation.py and generation.py do.


@dataclass(frozen=True, slots=True)
class Counts:
    """Over the whole run, the last step included."""

    saves: int
    evaluations: int
    generations: int


def count_events(config: RunConfig, steps: int, epochs: float | None) -> Counts:
    """`epochs` is None where the rows are not known; an evaluation at each epoch then counts as the last one."""
    evaluation, scored = config.evaluation, ranks_checkpoints(config)
    save_every = config.checkpoint.every_steps or steps
    epoch = max(1, round(steps / epochs)) if epochs else steps
    every = evaluation.every_steps or (0 if evaluation.every_epoch else save_every)
    asked = ((bool(every), every), (evaluation.every_epoch, epoch), (scored, save_every))
    evaluates = [interval for holds, interval in asked if holds]
    generates = {"evaluation": evaluates, "epoch": [epoch], "end": []}[evaluation.generate_at]
    if generates_at_saves(config):
        generates = [*generates, save_every]
    begins = int(bool(evaluation.at_start))
    return Counts(
        saves=_moments(steps, [save_every]) if config.mode.saves else 0,
        evaluations=_moments(steps, evaluates) + begins,
        generations=_moments(steps, generates) + (begins and evaluation.generate_at != "end")
        if evaluation.generate
        else 0,
    )


def _moments(steps: int, intervals: Collection[int]) -> int:
    """Steps of a run that are a multiple of one interval or several, and its last step. Multiples of several count once."""
    apart = set(intervals)
    groups = [some for size in range(1, len(apart) + 1) for some in combinations(apart, size)]
    return 1 + sum(int((-1) ** (len(some) + 1)) * ((steps - 1) // math.lcm(*some)) for some in groups)


# The pace of a resolved run: one optimizer step, by what this machine measured or by formula.


@dataclass(frozen=True, slots=True)
class Pace:
    """One optimizer step, and where its time comes from."""

    step: Range
    start: Range
    """Of the whole run: launcher, imports, model, data, closing."""
    fraction_of_peak: float | None
    verdict: TimeVerdict | None
    basis: Literal["formula", "rates", "others", "probe", "history"] = "formula"
    text: str = ""
    calibration: float | None = None
    """Measured over formula, where this device was measured with this model."""


def rate_of(plan: Plan) -> Rate | None:
    """What one process computes at best; None for a card that the catalogue does not know."""
    devices, precision = plan.devices, plan.get("engine.precision")
    if devices.device != "cpu" and devices.spec is None:
        return None
    if devices.spec is None:
        rate = cpu_rate(plan.get("engine.cpu_threads") or 1, precision or "fp32", plan.evidence.rates)
    else:
        rate = gpu_rate(devices.spec, precision or "fp32", bool(plan.get("engine.tf32")), plan.evidence.rates)
    if devices.nodes == 1:
        return rate
    return replace(rate, network=network_bytes_per_s(plan.get("planning.network_gbit_s") or ASSUMED_GBIT_S))


def pace_of(plan: Plan) -> Pace | None:
    """Measured here where it was, else by formula (core/estimate/time.py), put right by what was measured of other
    work; None where nothing is known."""
    work, usual, rate, devices = plan.work, plan.usual, plan.rate, plan.devices
    if work is None or usual is None:
        return None
    # Of one machine each: what the network adds to a step was measured by none of them.
    measurements = of_devices(
        plan.evidence.measurements if devices.nodes == 1 else (),
        plan.machine,
        devices.device,
        devices.gpus,
        plan.get("engine.cpu_threads"),
        bool(plan.get("engine.tf32")),
    )
    start = measured_start(work, measurements) or start_time(usual)
    # A measured start has none of the first step in it, which is where it compiles.
    start = start + COMPILED_START if plan.get("engine.compile") else start
    planned = None
    if rate is not None:
        mean = plan.padded.cost if plan.padded is not None else cost_of(usual)
        planned = step_time(usual, rate, mean)
    measured = measured_step(work, usual, planned, measurements, rate)
    if measured is None:
        if planned is None or rate is None:
            return None
        return Pace(planned.step, start, planned.fraction_of_peak, planned.verdict, *_source(usual, rate))
    share = verdict = None
    if planned is not None:
        share = planned.fraction_of_peak * planned.step.likely / measured.step.likely
        verdict = verdict_of(share, on_cpu=usual.device == "cpu")
    return Pace(measured.step, start, share, verdict, measured.basis, measured.text, measured.factor)


def _source(work: Workload, rate: Rate) -> tuple[Literal["formula", "rates"], str]:
    """What a pace by formula rests on."""
    if rate.rates is not None:
        day = rate.rates.day
        if rate.rates.threads is None:
            return "rates", tr("from the speed of this machine, measured {day}", day=day)
        return "rates", tr("from the speed of this machine, measured {day}; slower while other programs run", day=day)
    if work.device == "cpu":
        return "formula", tr("a rough estimate for this processor; `trainwiz hardware --measure` narrows it in 5 s")
    if rate.spread > SPREAD:
        return "formula", tr("from the throughput of this GPU, which is uncertain")
    return "formula", tr("from published runs on similar GPUs")


# The time and the energy of a resolved run as a plan shows them.

CALIBRATED_SPREAD = 1.5
"""Factor up and down of evaluation and generation where training was measured on the same device."""


def plan_time(plan: Plan) -> None:
    """Time of a step and of the whole run, as a range, and its energy."""
    config, work, pace, batch, steps = plan.config, plan.usual, plan.pace, plan.batch, plan.steps
    length: dict[str, Any] = {
        "steps": steps,
        "epochs": plan.epochs,
        "total_tokens": None if steps is None else steps * batch.effective_tokens,
        "real_tokens": None if steps is None or batch.real_tokens is None else steps * batch.real_tokens,
    }
    if work is None or pace is None:
        plan.time = TimePlan(**length)
        return
    step, start = pace.step, pace.start
    whole: dict[str, Any] = {}
    if steps is not None:
        counts = count_events(config, steps, plan.epochs)
        evaluation, generation = _evaluations(plan, work, pace, counts)
        # The last save writes the final model too.
        disk = disk_needs(work, 1)
        saving = saving_time(disk.checkpoint_bytes).times(counts.saves)
        if config.mode.saves:
            saving = saving + saving_time(disk.final_bytes)
        total = step.times(steps) + evaluation + generation + saving + start
        whole = {
            "total_s": total.likely,
            "total_low_s": total.low,
            "total_high_s": total.high,
            "evaluation_s": evaluation.likely,
            "generation_s": generation.likely,
            "saving_s": saving.likely,
            **_energy(plan, total, pace),
        }
    plan.time = TimePlan(
        step_s=step.likely,
        step_low_s=step.low,
        step_high_s=step.high,
        tokens_per_s=(batch.padded_tokens or batch.effective_samples * work.length) / step.likely,
        fraction_of_peak=pace.fraction_of_peak,
        basis=pace.basis,
        verdict=pace.verdict,
        start_low_s=start.low,
        start_high_s=start.high,
        basis_text=pace.text,
        currency=config.planning.currency,
        **length,
        **whole,
        **_network(plan, work),
        **_gains(plan, work),
    )


def _gains(plan: Plan, usual: Workload) -> dict[str, Any]:
    """How many times the pace of the rows as drawn the run has, and would have without padding; by formula."""
    rate, padded = plan.rate, plan.padded
    if rate is None or padded is None:
        return {}
    costs = (padded.cost, padded.drawn, padded.unpadded)
    own, drawn, unpadded = (step_time(usual, rate, cost).step.likely for cost in costs)
    return {"pace_gain": drawn / own, "possible_pace_gain": drawn / unpadded}


def _network(plan: Plan, work: Workload) -> dict[str, Any]:
    """What a step moves between the machines; nothing for one."""
    if plan.devices.nodes == 1:
        return {}
    said = plan.get("planning.network_gbit_s")
    gbit_s, moved = said or ASSUMED_GBIT_S, network_bytes(work)
    return {
        "network_bytes": int(moved),
        "network_high_s": moved / network_bytes_per_s(gbit_s),
        "network_gbit_s": gbit_s,
        "network_assumed": said is None,
    }


def _evaluations(plan: Plan, work: Workload, pace: Pace, counts: Counts) -> tuple[Range, Range]:
    """(evaluating, generating) over the whole run."""
    section, rate, counted = plan.config.data, plan.rate, plan.counted
    if rate is None:
        return Range(0.0, 0.0), Range(0.0, 0.0)
    # Of rows that are not known, as many are held out as of a large set.
    unknown = DEFAULT_MOST if section.validation_rows is None else section.validation_rows
    rows = 0 if section.validation_sources else unknown
    if counted is not None:
        rows = counted.validation_rows
    evaluation, generation = evaluation_time(work, rate, rows).times(counts.evaluations), Range(0.0, 0.0)
    if counts.generations:
        some = min(rows, plan.config.evaluation.generation_rows or rows)
        # The length that nine of ten targets keep to: about the longest text of a batch of like length.
        targets = lengths_of(counted.target_lengths) if counted is not None else None
        long_target = None if targets is None else targets.quantile(9, 10)
        generation = generation_time(work, rate, some, long_target).times(counts.generations)
    told = _calibrated(generation, pace.calibration)
    answers = answering(plan.config, work)
    if answers is not None and (rows or names_prompts(plan.config)):
        once = _calibrated(generation_time(answers, rate, answers.eval_micro_batch), pace.calibration)
        times = counts.evaluations + (not plan.config.evaluation.at_start) if rows else counts.saves + 1
        told = told + Range(min(once.low, ANSWERS_MOST_S), min(once.high, ANSWERS_MOST_S)).times(times)
    return _calibrated(evaluation, pace.calibration), told


def _calibrated(time: Range, calibration: float | None) -> Range:
    """`time` by formula, moved by what training measured over its own formula."""
    if calibration is None or time.low <= 0:
        return time
    return Range.around(time.likely * calibration, min(CALIBRATED_SPREAD, time.high / time.likely))


def _energy(plan: Plan, total: Range, pace: Pace) -> dict[str, float | None]:
    """kWh of the whole run and their price; nothing without GPUs, whose power alone is known."""
    limits = [gpu.power_limit_w or getattr(spec_of(gpu), "power_w", None) for gpu in plan.devices.gpus]
    energy = energy_kwh(limits, plan.devices.nodes, total, idle=pace.verdict == "idle")
    if energy is None:
        return {}
    low, high = energy
    price = plan.config.planning.energy_price_per_kwh
    return {
        "energy_low_kwh": low,
        "energy_high_kwh": high,
        "energy_cost_low": None if price is None else price * low,
        "energy_cost_high": None if price is None else price * high,
    }
