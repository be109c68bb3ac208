"""The estimates of a settled run as the values that a plan shows."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.config import RunConfig
from trainwiz.core.data.split import DEFAULT_MOST
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.disk import disk_needs
from trainwiz.core.estimate.generation import generation_time
from trainwiz.core.estimate.host import HostNeeds, host_ram_parts
from trainwiz.core.estimate.memory import (
    MemoryEstimate,
    estimate_evaluation,
    estimate_memory,
    unknown_memory,
    worse_verdict,
)
from trainwiz.core.estimate.states import states_of
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
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.lengths import lengths_of
from trainwiz.core.plan.result import MemoryPlan, TimePlan
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


def plan_memory(
    machine: Machine, devices: Devices, config: RunConfig, work: Workload | None, data: DataSummary | None
) -> tuple[MemoryEstimate, MemoryEstimate | None, MemoryPlan]:
    """(training, evaluation, the plan): the peak on the device, in host RAM and on disk."""
    estimate = estimate_memory(work) if work is not None else unknown_memory()
    evaluation = estimate_evaluation(work) if work is not None else None
    on_cpu = devices.device == "cpu"
    processes = devices.processes if on_cpu else 1
    parts = _host_parts(devices, config, work, data, estimate)
    kept = config.checkpoint.keep + (1 if config.checkpoint.keep_best else 0)
    disk = 0
    if work is not None:
        disk = disk_needs(work, kept, merged=config.peft.merge, own_base=config.model.init == "scratch").total_bytes
    share = None if devices.capacity_bytes is None else devices.capacity_bytes // processes
    verdict = estimate.verdict(share)
    if evaluation is not None:
        verdict = worse_verdict(verdict, evaluation.verdict(share))
    plan = MemoryPlan(
        tier="analytic",
        allocated_bytes=estimate.allocated_bytes * processes,
        reserved_bytes=estimate.reserved_bytes * processes,
        device_used_bytes=estimate.device_used_bytes * processes,
        low_bytes=estimate.low_bytes * processes,
        high_bytes=estimate.high_bytes * processes,
        breakdown={kind: size * processes for kind, size in estimate.breakdown.items()},
        peak_moment=estimate.peak_moment,
        capacity_bytes=devices.capacity_bytes,
        verdict=verdict,
        host_ram_bytes=sum(parts.values()),
        host_ram_capacity_bytes=machine.ram_available_bytes or None,
        host_ram_parts=parts,
        disk_bytes=disk,
        disk_capacity_bytes=machine.disk_free_bytes,
        device=devices.label,
        evaluation_bytes=evaluation.device_used_bytes * processes if evaluation is not None else None,
    )
    return estimate, evaluation, plan


def _host_parts(
    devices: Devices, config: RunConfig, work: Workload | None, data: DataSummary | None, estimate: MemoryEstimate
) -> dict[str, int]:
    section, batch = config.data, config.batch
    # A frozen base is read in the format that it is kept in.
    element = work.formats.weights if work is not None and work.lora else 4
    parameters = work.architecture.parameters if work is not None else 0
    return host_ram_parts(
        HostNeeds(
            processes=devices.processes,
            on_gpu=devices.device != "cpu",
            workers=section.workers or 0,
            prefetch=section.prefetch or 1,
            pin_memory=bool(section.pin_memory),
            micro_batch=batch.micro_batch_size or 1,
            length=batch.sequence_length,
            target_length=batch.target_length or 0,
            data_bytes=0 if section.streaming or data is None else data.bytes_in_memory,
            weights_bytes=element * parameters,
            offloaded_bytes=states_of(work).host if work is not None else 0,
            cuda=devices.device == "cuda",
            device_bytes=estimate.device_used_bytes if devices.device == "cpu" else 0,
        )
    )


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
