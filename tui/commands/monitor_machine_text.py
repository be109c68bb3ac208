"""What a snapshot says of the machine, as phrases: GPUs, CPU, host and the processes of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.status import ENDED
from trainwiz.core.telemetry.so_far import real_throttling
from trainwiz.tui.figures import duration, gib, size
from trainwiz.tui.widgets.gpu_lines import mig_words

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot


def gpu_parts(gpu: GpuReading, snapshot: Snapshot) -> list[str]:
    parts = [plain_text(gpu.name)]
    if gpu.problem:
        return [*parts, plain_text(gpu.problem)]
    if mig_words(gpu):
        parts.append(f"MIG {plain_text(mig_words(gpu))}")
    if gpu.utilization_percent is not None:
        parts.append(tr("busy {share} %", share=f"{gpu.utilization_percent:.0f}"))
    if gpu.memory_used_bytes is not None:
        used = tr("{amount} of {whole} GiB", amount=gib(gpu.memory_used_bytes), whole=gib(gpu.memory_total_bytes))
        parts.append(used + _memory_note(gpu, snapshot))
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        parts.append(f"{of_limit(gpu.power_w, gpu.power_limit_w)} W")
    if gpu.clock_mhz is not None:
        parts.append(f"{of_limit(gpu.clock_mhz, gpu.clock_limit_mhz)} MHz")
    if gpu.fan_percent is not None:
        parts.append(tr("fan {share} %", share=f"{gpu.fan_percent:.0f}"))
    slowing = real_throttling(gpu.throttle_reasons)
    return (
        [*parts, tr("held back by {reasons}", reasons=plain_text(tr(", ").join(map(tr, slowing))))]
        if slowing
        else parts
    )


def of_limit(value: float, limit: float | None) -> str:
    """ "280 of 300"; the value alone where no limit is known."""
    return f"{value:.0f}" if limit is None else tr("{amount} of {whole}", amount=f"{value:.0f}", whole=f"{limit:.0f}")


def _memory_note(gpu: GpuReading, snapshot: Snapshot) -> str:
    notes = []
    if gpu.job_memory_bytes is not None:
        notes.append(tr("this job {amount}", amount=gib(gpu.job_memory_bytes)))
    if snapshot.planned.memory_bytes is not None:
        notes.append(tr("planned {amount}", amount=gib(snapshot.planned.memory_bytes)))
    return f" ({', '.join(notes)})" if notes else ""


def cpu_parts(snapshot: Snapshot) -> list[str]:
    """The load of the job, and why no GPU is shown."""
    load = next((load for load in reversed(snapshot.job_cpu_history) if load is not None), None)
    if load is None or snapshot.status in ENDED:
        return []
    why = tr("it computes on the CPU; the machine has a GPU") if snapshot.gpus else tr("no GPU")
    return [
        tr("{share} % by this run (100 is one core)", share=f"{load:.0f}"),
        plain_text(snapshot.unavailable.get("gpus", why)),
    ]


def host_parts(snapshot: Snapshot) -> list[str]:
    host = snapshot.host
    parts = []
    if snapshot.job_rss_bytes is not None:
        parts.append(tr("RAM of this run {amount} GiB", amount=gib(snapshot.job_rss_bytes)))
    if host.ram_used_bytes is not None:
        parts.append(
            tr(
                "RAM in use {amount} of {whole} GiB",
                amount=gib(host.ram_used_bytes),
                whole=gib(host.ram_total_bytes),
            )
        )
    if host.disk_free_bytes is not None:
        words = tr("disk {size} free", size=size(host.disk_free_bytes))
        if host.disk_lasts_s is not None:
            words = tr("{disk}, lasts {time} at this pace", disk=words, time=duration(host.disk_lasts_s))
        parts.append(words)
    reason = snapshot.unavailable.get("host")
    return parts or ([plain_text(reason)] if reason else [])


def process_parts(snapshot: Snapshot) -> list[str]:
    """RAM of the job by role."""
    sizes: dict[str, list[int]] = {}
    for process in snapshot.processes:
        if process.rss_bytes is not None:
            sizes.setdefault(process.role, []).append(process.rss_bytes)
    return [role_words(plain_text(tr(role)), len(found), gib(sum(found))) for role, found in sizes.items()]


def role_words(role: str, processes: int, amount: str) -> str:
    """ "trainer 4.1 GiB", "loader worker 4 with 1.2 GiB"."""
    if processes == 1:
        return tr("{role} {amount} GiB", role=role, amount=amount)
    return tr("{role} {count} with {amount} GiB", role=role, count=processes, amount=amount)
