"""The memory of a settled run as a plan shows it: the device, host RAM and disk."""

from __future__ import annotations

from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.data.window_size import WINDOW_BYTES
from trainwiz.core.estimate.disk import LOG_BYTES, disk_needs
from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.host import HostNeeds, host_ram
from trainwiz.core.estimate.memory import (
    MemoryEstimate,
    estimate_evaluation,
    estimate_memory,
    unknown_memory,
    worse_verdict,
)
from trainwiz.core.estimate.state_sizes import optimizer_bytes
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import SINGLE, Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.result import MemoryPlan


def plan_memory(
    machine: Machine,
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    data: DataSummary | None,
    evidence: Evidence = NO_EVIDENCE,
    rows: int = 0,
) -> tuple[MemoryEstimate, MemoryEstimate | None, MemoryPlan]:
    """(training, evaluation, the plan): the peak on the device, in host RAM and on disk. `rows` are those of the data."""
    estimate = estimate_memory(work, evidence) if work is not None else unknown_memory()
    evaluation = estimate_evaluation(work, evidence) if work is not None else None
    on_cpu = devices.device == "cpu"
    processes = devices.processes if on_cpu else 1
    share = None if devices.capacity_bytes is None else devices.capacity_bytes // processes
    if devices.device == "cuda":
        estimate = estimate.on_card(share)
        evaluation = evaluation.on_card(share) if evaluation is not None else None
    mine = estimate.low_bytes, estimate.device_used_bytes, estimate.high_bytes
    host = host_ram(host_needs(devices, config, work, data, mine, rows))
    kept = config.checkpoint.keep + (1 if config.checkpoint.keep_best else 0)
    disk = 0
    if work is not None:
        on_disk = data.bytes_streamed if config.data.streaming and data is not None else 0
        scratch = config.model.init != "pretrained"
        needs = disk_needs(work, kept, merged=config.peft.merge, own_base=scratch, rows_bytes=on_disk)
        disk = needs.total_bytes if config.mode.saves else on_disk + LOG_BYTES
    verdict = estimate.verdict(share)
    if evaluation is not None:
        verdict = worse_verdict(verdict, evaluation.verdict(share))
    plan = MemoryPlan(
        tier=estimate.tier,
        allocated_bytes=estimate.allocated_bytes * processes,
        reserved_bytes=estimate.reserved_bytes * processes,
        device_used_bytes=estimate.device_used_bytes * processes,
        low_bytes=estimate.low_bytes * processes,
        high_bytes=estimate.high_bytes * processes,
        breakdown={kind: size * processes for kind, size in estimate.breakdown.items()},
        peak_moment=estimate.peak_moment,
        capacity_bytes=devices.capacity_bytes,
        verdict=verdict,
        host_ram_bytes=host.total_bytes,
        host_ram_capacity_bytes=machine.ram_available_bytes or None,
        host_ram_parts=host.parts,
        disk_bytes=disk,
        disk_capacity_bytes=machine.disk_free_bytes,
        device=devices.label,
        evaluation_bytes=evaluation.device_used_bytes * processes if evaluation is not None else None,
        basis=estimate.basis,
        waiting=evidence.waiting,
        host_ram_low_bytes=host.low_bytes,
        host_ram_high_bytes=host.high_bytes,
        needed_bytes=estimate.needed_bytes * processes,
        needed_high_bytes=estimate.safe_bytes * processes,
    )
    return estimate, evaluation, plan


def host_needs(
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    data: DataSummary | None,
    device_bytes: tuple[int, int, int],
    rows: int = 0,
) -> HostNeeds:
    """What decides the host RAM of `config`, which may be a draft's view. `device_bytes` (at least, likely, at most) is of one process
    on a CPU."""
    section, batch = config.data, config.batch
    # A frozen base is read in the format that it is kept in.
    element = work.formats.weights if work is not None and work.lora else 4
    parameters = work.architecture.parameters if work is not None else 0
    saved = work.adapter_parameters if work is not None and work.lora else parameters
    bytes_in_memory = data.bytes_in_memory if data is not None else 0
    return HostNeeds(
        processes=devices.processes,
        on_gpu=devices.device != "cpu",
        workers=section.workers or 0,
        prefetch=section.prefetch or 1,
        pin_memory=bool(section.pin_memory),
        micro_batch=batch.micro_batch_size or 1,
        length=batch.sequence_length,
        target_length=batch.target_length or 0,
        data_bytes=0 if section.streaming else bytes_in_memory,
        window_bytes=_window_bytes(data) if section.streaming else 0,
        weights_bytes=element * parameters,
        offloaded_bytes=states_of(work).host if work is not None else 0,
        cuda=devices.device == "cuda",
        device_bytes=device_bytes if devices.device == "cpu" else (0, 0, 0),
        saved_bytes=_saved_bytes(work, 4 * saved),
        rows=rows,
    )


def _window_bytes(data: DataSummary | None) -> int:
    """A whole window where the rows are not known: who streams has more than one."""
    return WINDOW_BYTES if data is None else min(data.bytes_in_memory, WINDOW_BYTES)


def _saved_bytes(work: Workload | None, weights_bytes: int) -> int:
    """What the first process holds in host RAM to write it: the weights; with FSDP, whose checkpoints are whole, the
    optimizer's states of all processes as well, after them."""
    if work is None or work.strategy != "fsdp":
        return weights_bytes
    return max(weights_bytes, int(work.trainable_parameters * optimizer_bytes(work.optimizer, SINGLE)))
