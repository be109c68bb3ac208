"""Advice about the machine: its cards, its memory, its disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainwiz.core.moments import moment_words
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
    """One sentence for each trouble, whichever cards have it."""
    for gpu in gpus:
        if gpu.problem and not _is_slice(gpu):
            yield Advice("gpu_unreadable", "warning", f"{_names([gpu])} cannot be read: {gpu.problem}.")
    readable = [gpu for gpu in gpus if not gpu.problem]
    yield from _throttling(readable)
    full = [gpu for gpu in readable if _is_nearly_full(gpu)]
    if full:
        verb = "is" if len(full) == 1 else "are"
        yield Advice(
            "gpu_memory_full", "warning", f"{_names(full)} {verb} nearly full: a longer batch could run out of memory."
        )
    if status == "running" and now_s is not None:
        yield from _idle([gpu for gpu in readable if _is_own(gpu, gpus)], now_s)
    for gpu in readable:
        yield from _others(gpu)


def _is_slice(gpu: GpuReading) -> bool:
    """A MIG slice stands beside its card."""
    return gpu.mig not in (None, "enabled", "disabled")


def _names(gpus: Sequence[GpuReading]) -> str:
    """ "GPU 0", "GPUs 0, 1 and 4"; a slice by its profile too."""
    names = [f"{gpu.index}" + (f" ({gpu.mig})" if _is_slice(gpu) else "") for gpu in gpus]
    if len(names) == 1:
        return f"GPU {names[0]}"
    return f"GPUs {', '.join(names[:-1])} and {names[-1]}"


def _throttling(gpus: Sequence[GpuReading]) -> Iterable[Advice]:
    held: dict[str, list[GpuReading]] = {"heat": [], "power_brake": [], "power_limit": []}
    for gpu in gpus:
        code = _held_back_by(gpu)
        if code is not None:
            held[code].append(gpu)
    if cards := held["heat"]:
        yield Advice(
            "heat",
            "warning",
            f"Heat limits the clock of {_names(cards)}{_since(cards)}{_clock_loss(cards)}.",
            "More air, a cleaner fan or a lower power limit keep it steady.",
        )
    if cards := held["power_brake"]:
        yield Advice(
            "power_brake",
            "warning",
            f"The hardware slows {_names(cards)} down{_since(cards)}{_clock_loss(cards)}.",
            "The power supply or a cable may not deliver enough.",
        )
    if cards := held["power_limit"]:
        yield Advice(
            "power_limit",
            "note",
            f"The power limit holds the clock of {_names(cards)}{_since(cards)}{_clock_loss(cards)}.",
        )


def _held_back_by(gpu: GpuReading) -> str | None:
    """The code of what slows the card, the worst where several do."""
    slowing = [reason.lower() for reason in real_throttling(gpu.throttle_reasons)]
    if limited_by_heat(slowing):
        return "heat"
    if any("brake" in reason or "hardware slowdown" in reason for reason in slowing):
        return "power_brake"
    return "power_limit" if any("power" in reason for reason in slowing) else None


def _since(gpus: Sequence[GpuReading]) -> str:
    """The first moment of it, where it is a time of day and not of a test."""
    known = [gpu.throttled_since_s for gpu in gpus if gpu.throttled_since_s is not None and gpu.throttled_since_s > 1e9]
    return f" since {moment_words(min(known), '%H:%M')}" if known else ""


def _clock_loss(gpus: Sequence[GpuReading]) -> str:
    """How far the clock of the slowest is below its highest, where both are known."""
    clocks = [
        (gpu.clock_mhz / gpu.clock_limit_mhz, gpu.clock_mhz, gpu.clock_limit_mhz)
        for gpu in gpus
        if gpu.clock_mhz and gpu.clock_limit_mhz and gpu.clock_mhz < gpu.clock_limit_mhz
    ]
    if not clocks:
        return ""
    _, clock, limit = min(clocks)
    return f" (at {clock:,.0f} of {limit:,.0f} MHz)"


def _is_nearly_full(gpu: GpuReading) -> bool:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return bool(used and total and used > NEARLY_FULL * total)


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
        f"Others hold {held / GIB:.1f} GiB of {_names([gpu])}: {names}{more}.",
        "They take memory and time from this job.",
    )


def _is_own(gpu: GpuReading, gpus: Sequence[GpuReading]) -> bool:
    """Whether the job computes on the card: its memory says so, or there is no other card."""
    return bool(gpu.job_memory_bytes) or (len(gpus) == 1 and not gpu.processes)


def _idle(gpus: Sequence[GpuReading], now_s: float) -> Iterable[Advice]:
    idle = {gpu.index: gpu for gpu in gpus if gpu.idle_since_s is not None and now_s - gpu.idle_since_s > IDLE_S}
    if not idle:
        return
    cards = list(idle.values())
    shortest_s = min(now_s - (gpu.idle_since_s or now_s) for gpu in cards)
    verb = "has" if len(cards) == 1 else "have"
    yield Advice(
        "gpu_idle",
        "warning",
        f"{_names(cards)} {verb} done nothing for {span_words(shortest_s)}.",
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
