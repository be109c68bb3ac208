"""The time of a settled run as a plan shows it."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.config import RunConfig
from trainwiz.core.data.split import DEFAULT_MOST
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.disk import disk_needs
from trainwiz.core.estimate.generation import generation_time
from trainwiz.core.estimate.time import (
    Range,
    Rate,
    StepTime,
    cpu_rate,
    evaluation_time,
    gpu_rate,
    saving_time,
    start_time,
)
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.lengths import lengths_of
from trainwiz.core.plan.result import TimePlan
from trainwiz.core.plan.schedule import count_events


@dataclass(frozen=True, slots=True)
class Length:
    """How long the run is."""

    steps: int | None
    epochs: float | None


def rate_of(devices: Devices, config: RunConfig) -> Rate | None:
    """What one process computes at best; None for a card that the catalogue does not know."""
    engine = config.engine
    if devices.device == "cpu":
        return cpu_rate(engine.cpu_threads or 1)
    if devices.spec is None:
        return None
    return gpu_rate(devices.spec, engine.precision or "fp32", bool(engine.tf32))


def plan_time(
    config: RunConfig,
    work: Workload | None,
    rate: Rate | None,
    each: StepTime | None,
    length: Length,
    data: DataSummary | None,
    samples: int,
) -> TimePlan:
    """Time of a step of `samples` sequences and of the whole run, as a range; `work` has the lengths of a usual batch."""
    if work is None or rate is None or each is None:
        return _unknown_time(length)
    step, start = each.step, start_time(work)
    total = evaluation = generation = saving = None
    if length.steps is not None:
        counts = count_events(config, length.steps, length.epochs)
        rows = held_out_rows(config, data)
        evaluation = evaluation_time(work, rate, rows).times(counts.evaluations)
        generation = Range(0.0, 0.0)
        if counts.generations:
            some = min(rows, config.evaluation.generation_rows or rows)
            generation = generation_time(work, rate, some, _long_target(data)).times(counts.generations)
        # The last save writes the final model too.
        disk = disk_needs(work, 1)
        saving = saving_time(disk.checkpoint_bytes).times(counts.saves) + saving_time(disk.final_bytes)
        total = step.times(length.steps) + evaluation + generation + saving + start
    return TimePlan(
        step_s=step.likely,
        step_low_s=step.low,
        step_high_s=step.high,
        steps=length.steps,
        epochs=length.epochs,
        total_s=total.likely if total else None,
        total_low_s=total.low if total else None,
        total_high_s=total.high if total else None,
        evaluation_s=evaluation.likely if evaluation else None,
        saving_s=saving.likely if saving else None,
        tokens_per_s=samples * work.length / step.likely,
        fraction_of_peak=each.fraction_of_peak,
        basis="roofline",
        verdict=each.verdict,
        start_low_s=start.low,
        start_high_s=start.high,
        generation_s=generation.likely if generation else None,
    )


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


def _unknown_time(length: Length) -> TimePlan:
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
    )
