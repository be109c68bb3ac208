"""Advice about the machine: GPUs, host, disk and waiting for data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainwiz.core.estimate.host import (
    USUAL_PREFETCH,
    WORKER_BYTES,
    late_batches,
    loading_ratio,
    most_prefetch,
    workers_for,
)
from trainwiz.core.language import tr, trn
from trainwiz.core.run.attempts import Advice, AdviceLevel, PhaseNow, advice_of
from trainwiz.core.run.state import ENDED
from trainwiz.core.telemetry.advice_training import (
    LossTrend,
    loss_advice,
    memory_advice,
    pace_advice,
    silence_advice,
    stall_advice,
)
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.peaks import Saves, limited_by_heat, real_throttling
from trainwiz.core.telemetry.run_plan import RunSetup
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, Planned, without_parents
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import moment_words

# Data wait: an input that starves the training, and the number of loader workers that would cure it.

DATA_WAIT_SHARE = 0.25
"""Of a step: more waiting than this is worth a word."""
RAM_SHARE = 0.5
"""Of the free RAM that more workers may take."""


@dataclass(frozen=True, slots=True)
class Cure:
    """How many loader workers each training process should have."""

    needed: int
    """That would load a step's batches while the step before is computed."""
    possible: int
    """As many of them as the cores and the RAM allow; never fewer than there are."""
    bound: str | None = None
    """What allows no more, "cores" or "ram"; None where all that are needed are possible."""


def workers_that_cure(
    workers: int,
    step_s: float,
    wait_s: float,
    *,
    batches: int = 1,
    prefetch: int = USUAL_PREFETCH,
    processes: int = 1,
    cpu_cores: int | None = None,
    worker_bytes: int = WORKER_BYTES,
    free_bytes: int | None = None,
) -> Cure:
    """Solved from what was measured: a step took `step_s`, `wait_s` of it without a batch (see loading_ratio).

    `worker_bytes` is what one more takes of the RAM: not its resident memory, most of which its parent holds too.
    """
    needed = max(workers + 1, workers_for(loading_ratio(step_s, wait_s, workers, batches, prefetch)))
    bounds: dict[str, int] = {}
    if cpu_cores is not None:
        # Each training process keeps a core for itself.
        bounds["cores"] = max(1, cpu_cores // processes - 1)
    if free_bytes is not None:
        bounds["ram"] = workers + int(RAM_SHARE * free_bytes / max(1, worker_bytes) / processes)
    bound = min(bounds, key=lambda name: bounds[name], default=None)
    if bound is None or bounds[bound] >= needed:
        return Cure(needed, needed)
    return Cure(needed, max(workers, bounds[bound]), bound)


def data_wait_advice(step_s: float | None, share: float | None, setup: RunSetup, host: HostReading) -> Iterable[Advice]:
    """`share` of a step of `step_s` is spent waiting for data."""
    if share is None or share <= DATA_WAIT_SHARE:
        return
    text = tr("Steps wait {share} % of their time for data.", share=f"{share * 100:.0f}")
    if step_s is None or setup.workers is None:
        yield Advice("data_wait", "warning", text, _more_workers())
        return
    prefetch, batches = setup.prefetch or USUAL_PREFETCH, setup.accumulation
    ratio = loading_ratio(step_s, share * step_s, setup.workers, batches, prefetch)
    if setup.workers and late_batches(setup.workers, batches, prefetch) and workers_for(ratio) <= setup.workers:
        each = min(math.ceil(batches / setup.workers), most_prefetch(setup.workers, pinned=setup.pinned))
        more = _ready(batches, setup.workers * prefetch, each) if each > prefetch else _more_workers()
        yield Advice("data_wait", "warning", text, more)
        return
    used, total = host.ram_used_bytes, host.ram_total_bytes
    cure = workers_that_cure(
        setup.workers,
        step_s,
        share * step_s,
        batches=batches,
        prefetch=prefetch,
        processes=setup.processes,
        cpu_cores=setup.cpu_cores,
        free_bytes=None if used is None or total is None else max(0, total - used),
    )
    yield Advice("data_wait", "warning", text, _remedy(cure, setup.workers))


def _more_workers() -> str:
    return tr("More loader workers may help (data.workers).")


def _ready(batches: int, ready: int, each: int) -> str:
    return tr(
        "A step takes its {n} micro-batches at once, of which {ready} can be ready: --set data.prefetch={each}",
        n=batches,
        ready=ready,
        each=each,
    )


def _remedy(cure: Cure, workers: int) -> str:
    values = {"now": workers, "needed": cure.needed, "possible": cure.possible}
    if cure.bound is None:
        return tr("{needed} instead of {now} loader workers would cure it: --set data.workers={needed}", **values)
    bound = tr("CPU cores") if cure.bound == "cores" else tr("free RAM")
    if cure.possible <= workers:
        return tr(
            "{needed} instead of {now} loader workers would cure it, and the {bound} allow no more than there are: "
            "rows that cost less to prepare, or a faster disk, would help.",
            bound=bound,
            **values,
        )
    return tr(
        "{needed} instead of {now} loader workers would cure it; the {bound} allow {possible}: "
        "--set data.workers={possible}",
        bound=bound,
        **values,
    )


# Advice about the machine: its cards, its memory, its disk.

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


# Advice: what a look at the figures has to say, worst first.

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}
MOMENTARY = frozenset({
    "stalled", "ram_full", "ram_short", "disk_short", "checkpoint_does_not_fit", "gpu_lost", "gpu_unreadable", "heat",
    "power_brake", "sensors_silent", "waiting_for_disk",
})  # fmt: skip
"""Codes that are about a moment of a run that goes on; a keeper that was killed could not take them back."""
NO_PACE = Pace(None, None, None, None, None)


def advise(
    *,
    status: str,
    metrics: Mapping[str, MetricSummary] | None = None,
    non_finite_steps: Mapping[str, tuple[float, ...]] | None = None,
    pace: Pace = NO_PACE,
    gpus: Iterable[GpuReading] = (),
    host: HostReading | None = None,
    planned: Planned | None = None,
    peak_memory_bytes: int | None = None,
    loss_trend: LossTrend | None = None,
    checkpoint_bytes: int | None = None,
    now_s: float | None = None,
    began_s: float | None = None,
    heartbeat_s: float | None = None,
    phase: PhaseNow | None = None,
    setup: RunSetup | None = None,
    saves: Saves | None = None,
    left_s: float | None = None,
    recorded: Iterable[Any] = (),
) -> tuple[Advice, ...]:
    """All advice, worst first. What is not given is not spoken of.

    `peak_memory_bytes` is the highest use of the planned device that was seen; `checkpoint_bytes`
    what the next checkpoint takes; `now_s` and `began_s` are the times of the look and of the
    start of the attempt (Unix time), `heartbeat_s` of the keeper's last word. `phase` is what the
    training says that it does, `setup` how it reads and saves, `saves` what it still saves, `left_s`
    the time until its end. `recorded` is what the run record carries: objects with `text` and perhaps
    `severity`, `code` and `remedy`. What it says already is not said twice.
    """
    metrics, planned, loss_trend, host = (
        metrics or {},
        planned or Planned(),
        loss_trend or LossTrend(),
        host or HostReading(),
    )
    advice = [*loss_advice(metrics, non_finite_steps or {}, loss_trend), *pace_advice(pace, planned)]
    advice += data_wait_advice(pace.step_s, pace.data_wait, setup or RunSetup(), host)
    advice += memory_advice(planned, peak_memory_bytes, stepped=bool(metrics))
    if status not in ENDED:
        advice += stall_advice(status, loss_trend, now_s, began_s, phase)
        advice += silence_advice(now_s, heartbeat_s)
        advice += gpu_advice(tuple(gpus), status=status, now_s=now_s)
        advice += host_advice(host, checkpoint_bytes, saves=saves, step_s=pace.wall_step_s, left_s=left_s)
    said = [item for item in advice_of(recorded) if status not in ENDED or item.code not in MOMENTARY]
    codes = {item.code for item in said}
    advice = [item for item in advice if item.code not in codes] + said
    return tuple(sorted(advice, key=lambda item: LEVELS[item.level]))
