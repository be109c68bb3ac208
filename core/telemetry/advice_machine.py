"""Advice about the machine: its cards, its memory, its disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from trainwiz.core.telemetry.snapshot import Advice, GpuReading, HostReading
from trainwiz.core.telemetry.so_far import limited_by_heat, real_throttling
from trainwiz.core.telemetry.spans import span_words

GIB = 1024**3
NEARLY_FULL = 0.95
DISK_SHORT_S = 24 * 3600.0
DISK_SHORT_BYTES = 2 * GIB
FORESEEN_SPANS = 24
"""How many times as far as it was watched a trend is believed."""
IDLE_S = 120.0
OTHERS_BYTES = GIB // 4
"""A desktop takes that much; it is no other job."""
OTHERS_NAMED = 3


def gpu_advice(gpus: Sequence[GpuReading], *, status: str, now_s: float | None) -> Iterable[Advice]:
    for gpu in gpus:
        if gpu.problem:
            yield Advice("gpu_unreadable", "warning", f"{_name(gpu)} cannot be read: {gpu.problem}.")
            continue
        yield from _throttling(gpu)
        yield from _memory(gpu)
        yield from _others(gpu)
        if status == "running" and now_s is not None and _is_own(gpu, gpus):
            yield from _idle(gpu, now_s)


def _name(gpu: GpuReading) -> str:
    return f"GPU {gpu.index}" + (f" ({gpu.mig})" if gpu.mig not in (None, "enabled", "disabled") else "")


def _throttling(gpu: GpuReading) -> Iterable[Advice]:
    slowing = real_throttling(gpu.throttle_reasons)
    since = ""
    if gpu.throttled_since_s is not None and gpu.throttled_since_s > 1e9:
        since = f" since {time.strftime('%H:%M', time.localtime(gpu.throttled_since_s))}"
    if limited_by_heat(slowing):
        yield Advice(
            "heat",
            "warning",
            f"Heat limits the clock of {_name(gpu)}{since}{_clock_loss(gpu)}.",
            "More air, a cleaner fan or a lower power limit keep it steady.",
        )
    elif any("brake" in reason.lower() or "hardware slowdown" in reason.lower() for reason in slowing):
        yield Advice(
            "power_brake",
            "warning",
            f"The hardware slows {_name(gpu)} down{since}{_clock_loss(gpu)}.",
            "Its power supply or its cables may not deliver enough.",
        )
    elif any("power" in reason.lower() for reason in slowing):
        yield Advice(
            "power_limit", "note", f"The power limit holds the clock of {_name(gpu)}{since}{_clock_loss(gpu)}."
        )


def _clock_loss(gpu: GpuReading) -> str:
    """How far the clock is below the highest, where both are known."""
    if not gpu.clock_mhz or not gpu.clock_limit_mhz or gpu.clock_mhz >= gpu.clock_limit_mhz:
        return ""
    return f" (at {gpu.clock_mhz:,.0f} of {gpu.clock_limit_mhz:,.0f} MHz)"


def _memory(gpu: GpuReading) -> Iterable[Advice]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used and total and used > NEARLY_FULL * total:
        yield Advice(
            "gpu_memory_full", "warning", f"{_name(gpu)} is nearly full: a longer batch could run out of memory."
        )


def _others(gpu: GpuReading) -> Iterable[Advice]:
    """Where no process of the job is known on the card, none is known to be another's either."""
    if not any(process.mine for process in gpu.processes):
        return
    others = sorted(
        (process for process in gpu.processes if not process.mine),
        key=lambda process: -(process.memory_used_bytes or 0),
    )
    held = sum(process.memory_used_bytes or 0 for process in others)
    if held < OTHERS_BYTES:
        return
    names = ", ".join(process.name or f"process {process.pid}" for process in others[:OTHERS_NAMED])
    more = f" and {len(others) - OTHERS_NAMED} more" if len(others) > OTHERS_NAMED else ""
    yield Advice(
        "others_on_gpu",
        "note",
        f"Others hold {held / GIB:.1f} GiB of {_name(gpu)}: {names}{more}.",
        "They take memory and time from this job.",
    )


def _is_own(gpu: GpuReading, gpus: Sequence[GpuReading]) -> bool:
    """Whether the job computes on the card: its memory says so, or there is no other card."""
    return bool(gpu.job_memory_bytes) or (len(gpus) == 1 and not gpu.processes)


def _idle(gpu: GpuReading, now_s: float) -> Iterable[Advice]:
    if gpu.idle_since_s is not None and now_s - gpu.idle_since_s > IDLE_S:
        yield Advice(
            "gpu_idle",
            "warning",
            f"{_name(gpu)} has done nothing for {span_words(now_s - gpu.idle_since_s)}.",
            "The log may say why: loading, saving, waiting for data or for another process.",
        )


def host_advice(host: HostReading, checkpoint_bytes: int | None) -> Iterable[Advice]:
    """`checkpoint_bytes`: what the next checkpoint takes, where that is known."""
    yield from _ram(host)
    free = host.disk_free_bytes
    if free is not None and checkpoint_bytes is not None and checkpoint_bytes > free:
        yield Advice(
            "checkpoint_does_not_fit",
            "error",
            f"The next checkpoint does not fit: the last one has {_gib(checkpoint_bytes)}, and {_gib(free)} of disk are free.",
            "Free some disk: older checkpoints of this run or of others may go.",
        )
    if _soon(host.disk_lasts_s, host.disk_span_s):
        yield Advice(
            "disk_short",
            "warning",
            f"The disk is full in {span_words(host.disk_lasts_s or 0.0)} at the pace of the last"
            f" {span_words(host.disk_span_s or 0.0)}.",
            "Keep fewer checkpoints, save less often, or free some disk.",
        )
    elif free is not None and free < DISK_SHORT_BYTES:
        yield Advice("disk_short", "warning", f"Only {_gib(free)} of disk are free.")


def _ram(host: HostReading) -> Iterable[Advice]:
    used, total = host.ram_used_bytes, host.ram_total_bytes
    if used and total and used > NEARLY_FULL * total:
        swapped = ""
        if host.swap_used_bytes and host.swap_used_bytes > GIB:
            swapped = f", and {_gib(host.swap_used_bytes)} are swapped out"
        yield Advice(
            "ram_full",
            "warning",
            f"Host RAM is nearly full: {_gib(used)} of {_gib(total)}{swapped}.",
            "Fewer loader workers would free some (data.workers).",
        )
    elif _soon(host.ram_lasts_s, host.ram_span_s):
        yield Advice(
            "ram_short",
            "warning",
            f"Host RAM grows: full in {span_words(host.ram_lasts_s or 0.0)} at the pace of the last"
            f" {span_words(host.ram_span_s or 0.0)}.",
            "Loader workers that copy what they read may be the cause: the panel shows RAM by role.",
        )


def _soon(lasts_s: float | None, span_s: float | None) -> bool:
    """A trend is believed for FORESEEN_SPANS times as long as it was watched."""
    return lasts_s is not None and span_s is not None and lasts_s < min(DISK_SHORT_S, FORESEEN_SPANS * span_s)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
