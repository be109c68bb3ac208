"""The time and the energy of a settled run as a plan shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.config import RunConfig
from trainwiz.core.data.split import DEFAULT_MOST
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.disk import disk_needs
from trainwiz.core.estimate.energy import power_of
from trainwiz.core.estimate.generation import generation_time
from trainwiz.core.estimate.network import network_bytes, network_time_s
from trainwiz.core.estimate.time import (
    Range,
    Rate,
    evaluation_time,
    saving_time,
)
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.lengths import lengths_of
from trainwiz.core.plan.pace import Pace, network_of
from trainwiz.core.plan.result import BatchPlan, TimePlan
from trainwiz.core.plan.schedule import Counts, count_events

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
