"""Advice about the machine: its cards, its memory, its disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from trainwiz.core.language import tr, trn
from trainwiz.core.moments import moment_words
from trainwiz.core.run.advice import Advice
from trainwiz.core.telemetry.checkpoint_room import Saves
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, without_parents
from trainwiz.core.telemetry.so_far import limited_by_heat, real_throttling
from trainwiz.core.telemetry.spans import span_words

GIB = 1024**3
NEARLY_FULL = 0.95
DISK_SHORT_S = 24 * 3600.0
DISK_SHORT_BYTES = 2 * GIB
FORESEEN_SPANS = 24
"""How many times as far as it was watched a trend is believed."""
RAM_SPAN_S = 300.0
"""RAM is watched for so long at least: loader workers and buffers fill up in the first minutes, and stop."""
IDLE_S = 120.0
OTHERS_BYTES = GIB // 4
"""A desktop takes that much; it is no other job."""
OTHERS_NAMED = 3
T = TypeVar("T")
LOST = "GPU is lost"
"""In the reason of core/hardware/nvml.py for a card that is gone; records hold it in English."""


def gpu_advice(gpus: Sequence[GpuReading], *, status: str, now_s: float | None) -> Iterable[Advice]:
    """One sentence for each trouble, whichever cards have it."""
    broken = _alike((gpu.problem, gpu) for gpu in gpus if gpu.problem and not gpu.is_slice)
    for problem, cards in broken.items():
        lost = LOST in problem
        yield Advice(
            "gpu_lost" if lost else "gpu_unreadable",
            "error" if lost else "warning",
            tr("{gpus} cannot be read: {reason}.", gpus=_names(cards), reason=tr(problem)),
            tr("What computes on it fails or hangs: restart the machine, then resume the run.") if lost else None,
        )
    readable = [gpu for gpu in gpus if not gpu.problem]
    yield from _throttling(readable)
    readable = without_parents(readable)
    full = [gpu for gpu in readable if _is_nearly_full(gpu)]
    if full:
        message = trn(
            "{gpus} is nearly full: a longer batch could run out of memory.",
            "{gpus} are nearly full: a longer batch could run out of memory.",
            len(full),
            gpus=_names(full),
        )
        yield Advice("gpu_memory_full", "warning", message)
    if status == "running" and now_s is not None:
        yield from _idle([gpu for gpu in readable if _is_own(gpu, readable)], now_s)
    for (size, names), cards in _alike((_others(gpu), gpu) for gpu in readable).items():
        text = tr("Others hold {size} GiB of {gpus}: {names}.", size=size, gpus=_names(cards), names=names)
        if len(cards) > 1:
            text = tr("Others hold {size} GiB of each of {gpus}: {names}.", size=size, gpus=_names(cards), names=names)
        yield Advice("others_on_gpu", "note", text, tr("They take memory and time from this job."))


def _alike(found: Iterable[tuple[T | None, GpuReading]]) -> dict[T, list[GpuReading]]:
    """The cards of which the same is to be said, so that it is said once; of None nothing is."""
    groups: dict[T, list[GpuReading]] = {}
    for what, gpu in found:
        if what is not None:
            groups.setdefault(what, []).append(gpu)
    return groups


def _names(gpus: Sequence[GpuReading]) -> str:
    """ "GPU 0", "GPUs 0, 1 and 4"; a slice by its profile too."""
    names = [f"{gpu.index}" + (f" ({gpu.mig})" if gpu.is_slice else "") for gpu in gpus]
    if len(names) == 1:
        return tr("GPU {number}", number=names[0])
    return tr("GPUs {numbers} and {last}", numbers=", ".join(names[:-1]), last=names[-1])


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
            _held(tr("Heat limits the clock of {gpus}", gpus=_names(cards)), cards),
            tr("More air, a cleaner fan or a lower power limit keep it steady."),
        )
    if cards := held["power_brake"]:
        yield Advice(
            "power_brake",
            "warning",
            _held(tr("The hardware slows {gpus} down", gpus=_names(cards)), cards),
            tr("The power supply or a cable may not deliver enough."),
        )
    if cards := held["power_limit"]:
        yield Advice(
            "power_limit",
            "note",
            _held(tr("The power limit holds the clock of {gpus}", gpus=_names(cards)), cards),
        )


def _held(what: str, gpus: Sequence[GpuReading]) -> str:
    """The sentence that `what` begins, with since when and how far, where that is known."""
    since, clocks = _since(gpus), _slowest(gpus)
    if since is not None:
        what = tr("{what} since {time}", what=what, time=since)
    if clocks is not None:
        clock, limit = clocks
        what = tr("{what} (at {clock} of {limit} MHz)", what=what, clock=f"{clock:,.0f}", limit=f"{limit:,.0f}")
    return tr("{sentence}.", sentence=what)


def _held_back_by(gpu: GpuReading) -> str | None:
    """The code of what slows the card, the worst where several do."""
    slowing = [reason.lower() for reason in real_throttling(gpu.throttle_reasons)]
    if limited_by_heat(slowing):
        return "heat"
    if any("brake" in reason or "hardware slowdown" in reason for reason in slowing):
        return "power_brake"
    return "power_limit" if any("power" in reason for reason in slowing) else None


def _since(gpus: Sequence[GpuReading]) -> str | None:
    """The first moment of it, where it is a time of day and not of a test."""
    known = [gpu.throttled_since_s for gpu in gpus if gpu.throttled_since_s is not None and gpu.throttled_since_s > 1e9]
    return moment_words(min(known), "%H:%M") if known else None


def _slowest(gpus: Sequence[GpuReading]) -> tuple[float, float] | None:
    """(clock, highest clock) in MHz of the card that is furthest below its highest, where both are known."""
    clocks = [
        (gpu.clock_mhz / gpu.clock_limit_mhz, gpu.clock_mhz, gpu.clock_limit_mhz)
        for gpu in gpus
        if gpu.clock_mhz and gpu.clock_limit_mhz and gpu.clock_mhz < gpu.clock_limit_mhz
    ]
    return min(clocks)[1:] if clocks else None


def _is_nearly_full(gpu: GpuReading) -> bool:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return bool(used and total and used > NEARLY_FULL * total)


def _others(gpu: GpuReading) -> tuple[str, str] | None:
    """(GiB, who): where no process of the job is known on the card, none is known to be another's either."""
    if not any(process.mine for process in gpu.processes):
        return None
    others = sorted(
        (process for process in gpu.processes if not process.mine),
        key=lambda process: -(process.memory_used_bytes or 0),
    )
    held = sum(process.memory_used_bytes or 0 for process in others)
    if held < OTHERS_BYTES:
        return None
    names = ", ".join(process.name or tr("process {pid}", pid=process.pid) for process in others[:OTHERS_NAMED])
    if len(others) > OTHERS_NAMED:
        names = tr("{names} and {n} more", names=names, n=len(others) - OTHERS_NAMED)
    return f"{held / GIB:.1f}", names


def _is_own(gpu: GpuReading, gpus: Sequence[GpuReading]) -> bool:
    """Whether the job computes on the card: its memory says so, or there is no other card."""
    return bool(gpu.job_memory_bytes) or (len(gpus) == 1 and not gpu.processes)


def _idle(gpus: Sequence[GpuReading], now_s: float) -> Iterable[Advice]:
    idle = {gpu.index: gpu for gpu in gpus if gpu.idle_since_s is not None and now_s - gpu.idle_since_s > IDLE_S}
    if not idle:
        return
    cards = list(idle.values())
    shortest_s = min(now_s - (gpu.idle_since_s or now_s) for gpu in cards)
    message = trn(
        "{gpus} has done nothing for {time}.",
        "{gpus} have done nothing for {time}.",
        len(cards),
        gpus=_names(cards),
        time=span_words(shortest_s),
    )
    yield Advice(
        "gpu_idle",
        "warning",
        message,
        tr("The log may say why: loading, saving, waiting for data or for another process."),
    )


def host_advice(
    host: HostReading,
    checkpoint_bytes: int | None,
    *,
    saves: Saves | None = None,
    step_s: float | None = None,
    left_s: float | None = None,
) -> Iterable[Advice]:
    """`checkpoint_bytes`: what the next checkpoint takes, where that is known. `saves`: what the run still
    writes, `step_s` its pace by the wall clock, and `left_s` the time until its end; None where unknown."""
    yield from _ram(host, left_s)
    yield from _disk(host, checkpoint_bytes, saves, step_s, left_s)


def _disk(
    host: HostReading, checkpoint_bytes: int | None, saves: Saves | None, step_s: float | None, left_s: float | None
) -> Iterable[Advice]:
    free = host.disk_free_bytes
    if free is not None and checkpoint_bytes is not None and checkpoint_bytes > free:
        yield Advice(
            "checkpoint_does_not_fit",
            "error",
            tr(
                "The next checkpoint does not fit: the last one has {size}, and {free} of disk are free.",
                size=_gib(checkpoint_bytes),
                free=_gib(free),
            ),
            tr("Free some disk: older checkpoints of this run or of others may go."),
        )
    failing = saves.fails_at_step(free) if saves is not None and free is not None else None
    # The trend of a run that has not yet as many checkpoints as it keeps is not the one to come.
    settled = saves is None or not saves.grows
    if saves is not None and free is not None and failing is not None:
        yield _lasts_not(saves, free, failing, step_s)
    elif settled and _soon(host.disk_lasts_s, host.disk_span_s, left_s):
        yield Advice(
            "disk_short",
            "warning",
            tr(
                "The disk is full in {time} at the pace of the last {span}.",
                time=span_words(host.disk_lasts_s or 0.0),
                span=span_words(host.disk_span_s or 0.0),
            ),
            tr("Keep fewer checkpoints, save less often, or free some disk."),
        )
    elif free is not None and free < DISK_SHORT_BYTES:
        yield Advice("disk_short", "warning", tr("Only {size} of disk are free.", size=_gib(free)))


def _lasts_not(saves: Saves, free: int, failing: int, step_s: float | None) -> Advice:
    """The disk does not last to the end of the run."""
    values = {"need": _gib(saves.needed_bytes), "free": _gib(free), "step": f"{failing:,}"}
    text = tr(
        "The disk does not last to the end: the run still takes {need} for checkpoints and model, and {free} are free; "
        "the save at step {step} does not fit.",
        **values,
    )
    if step_s is not None:
        text = tr(
            "The disk does not last to the end: the run still takes {need} for checkpoints and model, and {free} are "
            "free; the save at step {step}, in about {time}, does not fit.",
            time=span_words(max(0, failing - saves.step) * step_s),
            **values,
        )
    missing = _gib(saves.needed_bytes - free)
    return Advice(
        "disk_short", "warning", text, tr("Free {size} there: `trainwiz runs list` shows older runs.", size=missing)
    )


def _ram(host: HostReading, left_s: float | None) -> Iterable[Advice]:
    used, total = host.ram_used_bytes, host.ram_total_bytes
    if used and total and used > NEARLY_FULL * total:
        message = tr("Host RAM is nearly full: {used} of {total}.", used=_gib(used), total=_gib(total))
        if host.swap_used_bytes and host.swap_used_bytes > GIB:
            message = tr(
                "Host RAM is nearly full: {used} of {total}, and {swapped} are swapped out.",
                used=_gib(used),
                total=_gib(total),
                swapped=_gib(host.swap_used_bytes),
            )
        yield Advice(
            "ram_full",
            "warning",
            message,
            tr("End what else needs it here; fewer loader workers, where there are any, free some (data.workers)."),
        )
    elif (host.ram_span_s or 0.0) >= RAM_SPAN_S and _soon(host.ram_lasts_s, host.ram_span_s, left_s):
        yield Advice(
            "ram_short",
            "warning",
            tr(
                "Host RAM grows: full in {time} at the pace of the last {span}.",
                time=span_words(host.ram_lasts_s or 0.0),
                span=span_words(host.ram_span_s or 0.0),
            ),
            tr("Loader workers that copy what they read may be the cause: the panel shows RAM by role."),
        )


def _soon(lasts_s: float | None, span_s: float | None, left_s: float | None) -> bool:
    """A trend is believed for FORESEEN_SPANS times as long as it was watched; what ends before it does not matter."""
    if lasts_s is None or span_s is None or (left_s is not None and left_s < lasts_s):
        return False
    return lasts_s < min(DISK_SHORT_S, FORESEEN_SPANS * span_s)


def _gib(size: int) -> str:
    """In MiB where GiB would round it to nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / 1024**2:.1f} MiB"
