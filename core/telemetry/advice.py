"""Advice: what a snapshot has to say, as a table of rules and one of sentences; worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.host import USUAL_PREFETCH, loading_ratio, workers_for
from trainwiz.core.language import mark, tr
from trainwiz.core.run.attempts import Advice, AdviceLevel, PhaseNow, advice_of
from trainwiz.core.run.lost import HEARTBEAT_LOST_S
from trainwiz.core.run.state import ENDED
from trainwiz.core.telemetry.machine import TREND_S, Saves, limited_by_heat
from trainwiz.core.telemetry.metrics import MetricSummary, Pace, loss_name
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, Planned, Snapshot, without_parents
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import numbers_finite, whole_in

GIB = 1024**3
NEARLY_FULL = 0.95
STALLED_PAUSES = 5
"""No new row for so many of the usual pauses between two rows,"""
STALLED_S = 120.0
"""and for this long beyond one of them, is worth a word."""
DATA_WAIT_SHARE = 0.25
"""Of a step: more waiting than this is worth a word."""
DISK_SHORT_BYTES = 2 * GIB
FORESEEN_S = 24 * TREND_S
"""What lasts longer at the pace of the last minutes is not spoken of: that pace is not believed for so long."""
IDLE_S = 120.0
LOST = "GPU is lost"
"""In the reason of core/hardware/nvml.py for a card that is gone; records hold it in English."""

BRAKES = frozenset({"power brake", "hardware slowdown"})

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}
MOMENTARY = frozenset({
    "stalled", "ram_full", "ram_short", "disk_short", "gpu_lost", "gpu_unreadable", "heat",
    "power_brake", "sensors_silent", "waiting_for_disk",
})  # fmt: skip
"""Codes that are about a moment of a run that goes on; a keeper that was killed could not take them back."""

SEVERITIES: Mapping[str, AdviceLevel] = {
    "nan_loss": "error", "gpu_lost": "error",
    "memory_as_planned": "ok",
}  # fmt: skip
"""By code; all others are warnings. What is outside of the plan is never "ok"."""
SAYINGS: Mapping[str, str] = {
    "nan_loss": mark("The loss was NaN or infinite in {n} of {count} logged steps, first at step {step}."),
    "slower_than_plan": mark("Steps take {times}x as long as planned."),
    "stalled": mark("No step was logged for {time}; usually there is one every {pause}."),
    "keeper_silent": mark(
        "The supervisor has written nothing for {time}: the status and machine readings shown are from that time."
    ),
    "memory_above_plan": mark("Memory is {share}% above the plan: peak {peak} GiB, planned {planned}."),
    "memory_as_planned": mark("Memory is as planned: peak {peak} GiB, planned {planned}."),
    "gpu_lost": mark("{gpus} cannot be read: {reason}."),
    "gpu_unreadable": mark("{gpus} cannot be read: {reason}."),
    "heat": mark("{gpus} throttled by heat."),
    "power_brake": mark("{gpus} throttled by the hardware."),
    "gpu_memory_full": mark("Memory nearly full on {gpus}: a longer batch could run out of memory."),
    "gpu_idle": mark("Idle for {time}: {gpus}."),
    "disk_short.saves": mark(
        "The disk will be full before the run ends: checkpoints and model still need {need}, and {free} is free."
    ),
    "disk_short.trend": mark("The disk will be full in {time} at the rate of the last {span}."),
    "disk_short": mark("Only {size} of disk space is free."),
    "ram_full": mark("RAM is nearly full: {used} of {total}."),
    "ram_short": mark("RAM usage is growing: full in {time} at the rate of the last {span}."),
    "data_wait": mark("Steps wait {share}% of their time for data."),
}
"""Code, or which sentence of it -> the sentence."""
REMEDIES: Mapping[str, str] = {
    "nan_loss": mark(
        "Check the data and the labels; a lower learning rate may help, and with fp16 a format with a wider range. The "
        "last checkpoint before it is still good."
    ),
    "stalled": mark(
        "One of its processes may be hanging: the log may show which. To restart it, stop and resume the run."
    ),
    "keeper_silent": mark(
        "It is suspended (`kill -CONT` resumes it), or cannot write (disk full?); a stop takes effect once it "
        "continues."
    ),
    "gpu_lost": mark("Computations on it fail or hang: restart the machine, then resume the run."),
    "gpu_idle": mark("The log may show why: loading, saving, waiting for data or for another process."),
    "heat": mark("Better airflow, a cleaner fan or a lower power limit helps."),
    "power_brake": mark("The power supply or a cable may not deliver enough."),
    "disk_short": mark("Keep fewer checkpoints, save less often, or free disk space."),
    "ram_full": mark(
        "Close other programs that use RAM; fewer loader workers, if there are any, free some too (data.workers)."
    ),
    "ram_short": mark("Loader workers that copy what they read may be the cause: the panel shows RAM by role."),
    "data_wait": mark("More loader workers may help (data.workers)."),
    "data_wait.workers": mark("{needed} instead of {now} loader workers would help: --set data.workers={needed}"),
    "data_wait.no_more": mark(
        "No CPU core is free for more loader workers: rows that are cheaper to prepare, or a faster disk, would help."
    ),
}
"""Likewise, what to do about it."""


def _say(saying: str, **values: object) -> Advice:
    """`saying` is a code, or which sentence or remedy of it; what a variant does not have of its own is the code's."""
    code = saying.partition(".")[0]
    remedy = REMEDIES.get(saying) or REMEDIES.get(code)
    text = tr(SAYINGS.get(saying) or SAYINGS[code], **values)
    return Advice(code, SEVERITIES.get(code, "warning"), text, None if remedy is None else tr(remedy, **values))


def advise(snapshot: Snapshot, recorded: Iterable[Any] = ()) -> tuple[Advice, ...]:
    """All advice about it, worst first; what it does not know is not spoken of.

    `recorded` is what the run record carries: objects with `text` and perhaps `severity`, `code` and
    `remedy`. What it says already is not said twice.
    """
    ended = snapshot.status in ENDED
    advice = [*training_advice(snapshot), *(() if ended else live_advice(snapshot))]
    said = [item for item in advice_of(recorded) if not ended or item.code not in MOMENTARY]
    codes = {item.code for item in said}
    return worst_first([item for item in advice if item.code not in codes], said)


def worst_first(*advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """All of it once."""
    every = dict.fromkeys(item for some in advice for item in some)
    return tuple(sorted(every, key=lambda item: LEVELS[item.level]))


def training_advice(snapshot: Snapshot) -> Iterable[Advice]:
    """Of the training: its loss, its pace, its memory against the plan; true of one that has ended, too."""
    # Others name their metrics as they like, and their loss alone is known for what it is.
    name = "loss" if snapshot.source == "run" else loss_name(snapshot.metrics)
    yield from loss_advice(snapshot.metrics.get(name or ""), snapshot.non_finite_steps)
    planned = snapshot.planned
    if snapshot.pace.against(planned.step_low_s, planned.step_high_s) == "slower":
        yield _say("slower_than_plan", times=f"{(snapshot.pace.step_s or 0.0) / (planned.step_high_s or 1.0):.1f}")
    yield from data_wait_advice(snapshot.pace, snapshot.engine)
    yield from _memory_advice(planned, snapshot.peak_memory_bytes, has_stepped=bool(snapshot.metrics))


def live_advice(snapshot: Snapshot) -> Iterable[Advice]:
    """Of a training that goes on: an ended one has no machine."""
    if snapshot.status == "running" and not snapshot.behind:
        began_s = snapshot.attempts[-1].started_s if snapshot.attempts else None
        yield from stall_advice(snapshot.logged_s, snapshot.pause_s, snapshot.time_s, began_s, snapshot.phase)
    silent_s = 0.0 if snapshot.heartbeat_s is None else snapshot.time_s - snapshot.heartbeat_s
    if silent_s > HEARTBEAT_LOST_S:
        # The keeper lives and does not write: its readings are old, and a stop has to wait.
        yield _say("keeper_silent", time=span_words(silent_s))
    yield from gpu_advice(snapshot.used_gpus, status=snapshot.status, now_s=snapshot.time_s)
    yield from host_advice(snapshot.host, saves=snapshot.saves, left_s=snapshot.left_s)


def loss_advice(loss: MetricSummary | None, non_finite_steps: Sequence[float]) -> Iterable[Advice]:
    if loss is not None and loss.non_finite:
        first = f"{non_finite_steps[0]:,.0f}" if non_finite_steps else "?"
        said = _say("nan_loss", n=f"{loss.non_finite:,}", count=f"{loss.count:,}", step=first)
        # The loss found its way back.
        yield said if numbers_finite(loss.last) is None else replace(said, level="warning")


def _memory_advice(planned: Planned, peak: int | None, *, has_stepped: bool) -> Iterable[Advice]:
    """The plan speaks of a training step: before the first one only too much of it says anything."""
    expected = planned.memory_bytes
    if peak is None or expected is None or expected <= 0:
        return
    figures = {"peak": f"{peak / GIB:.1f}", "planned": f"{expected / GIB:.1f}"}
    if peak > (planned.memory_high_bytes or expected):
        yield _say("memory_above_plan", share=f"{(peak / expected - 1) * 100:.0f}", **figures)
    elif has_stepped and peak >= (planned.memory_low_bytes or expected):
        yield _say("memory_as_planned", **figures)


def stall_advice(
    logged_s: float | None, pause_s: float | None, now_s: float, began_s: float | None, phase: PhaseNow | None
) -> Iterable[Advice]:
    """A run that is said to go on and logs nothing for much longer than it used to.

    `logged_s` is when it logged last, `pause_s` its usual pause. `began_s`: when this attempt began; the rows before are
    another's. `phase`: what the training says of itself; work that is no step is no stall, and the time of it does not count.
    """
    if logged_s is None or pause_s is None or (phase is not None and phase.phase != "training"):
        return
    silent_s = now_s - max(logged_s, began_s or 0.0, phase.since_s if phase else 0.0)
    if silent_s > max(STALLED_PAUSES * pause_s, pause_s + STALLED_S):
        yield _say("stalled", time=span_words(silent_s), pause=span_words(pause_s))


def data_wait_advice(pace: Pace, engine: Mapping[str, Any]) -> Iterable[Advice]:
    """An input that starves the training, and the number of loader workers that would help, within the cores.

    `engine`: the engine record of the run, as read inside the training process."""
    step_s, share, workers = pace.step_s, pace.data_wait, whole_in(engine.get("workers"))
    if share is None or share <= DATA_WAIT_SHARE:
        return
    percent = f"{share * 100:.0f}"
    if step_s is None or workers is None:
        yield _say("data_wait", share=percent)
        return
    at_once, prefetch = whole_in(engine.get("gradient_accumulation_steps")), whole_in(engine.get("prefetch"))
    ratio = loading_ratio(step_s, share * step_s, workers, at_once or 1, prefetch or USUAL_PREFETCH)
    needed, cores = max(workers + 1, workers_for(ratio)), whole_in(engine.get("cpu_cores"))
    if cores is not None:
        # Each training process of the machine keeps a core for itself.
        processes = whole_in(engine.get("local_world_size")) or whole_in(engine.get("world_size")) or 1
        needed = min(needed, cores // processes - 1)
    saying = "data_wait.workers" if needed > workers else "data_wait.no_more"
    yield _say(saying, share=percent, now=workers, needed=needed)


# The machine: its cards, its memory, its disk.


def gpu_advice(gpus: Sequence[GpuReading], *, status: str, now_s: float) -> Iterable[Advice]:
    """One sentence for each trouble, whichever cards have it."""
    lost = [gpu for gpu in gpus if gpu.problem and not gpu.is_slice]
    if lost:
        reasons = "; ".join(dict.fromkeys(tr(gpu.problem or "") for gpu in lost))
        is_lost = any(LOST in (gpu.problem or "") for gpu in lost)
        yield _say("gpu_lost" if is_lost else "gpu_unreadable", gpus=_names(lost), reason=reasons)
    readable = [gpu for gpu in gpus if not gpu.problem]
    hot = [gpu for gpu in readable if limited_by_heat(gpu.throttle_reasons)]
    slowed = [gpu for gpu in readable if gpu not in hot and BRAKES.intersection(gpu.throttle_reasons)]
    readable = without_parents(readable)
    full = [gpu for gpu in readable if _is_nearly(gpu.memory_used_bytes, gpu.memory_total_bytes)]
    for code, cards in (("heat", hot), ("power_brake", slowed), ("gpu_memory_full", full)):
        if cards:
            yield _say(code, gpus=_names(cards))
    # Of the job are those that hold its memory, and the only card where nobody is known on it.
    alone = len(readable) == 1 and not readable[0].processes
    own = [gpu for gpu in readable if gpu.job_memory_bytes or alone] if status == "running" else []
    idle = [gpu for gpu in own if gpu.idle_since_s is not None and now_s - gpu.idle_since_s > IDLE_S]
    if idle:
        least_s = min(now_s - (gpu.idle_since_s or now_s) for gpu in idle)
        yield _say("gpu_idle", gpus=_names(idle), time=span_words(least_s))


def _names(gpus: Sequence[GpuReading]) -> str:
    """ "GPU 0", "GPUs 0, 1 and 4"; a slice by its profile too."""
    names = [f"{gpu.index}" + (f" ({gpu.mig})" if gpu.is_slice else "") for gpu in gpus]
    if len(names) == 1:
        return tr("GPU {number}", number=names[0])
    return tr("GPUs {numbers} and {last}", numbers=", ".join(names[:-1]), last=names[-1])


def _is_nearly(used: int | None, total: int | None) -> bool:
    return bool(used and total and used > NEARLY_FULL * total)


def host_advice(host: HostReading, *, saves: Saves | None = None, left_s: float | None = None) -> Iterable[Advice]:
    """`saves`: what the run still writes, and `left_s` the time until its end; None where unknown."""
    foreseen_s = FORESEEN_S if left_s is None else min(FORESEEN_S, left_s)
    used, total, free = host.ram_used_bytes, host.ram_total_bytes, host.disk_free_bytes
    if _is_nearly(used, total):
        yield _say("ram_full", used=_size(used or 0), total=_size(total or 0))
    elif host.ram_lasts_s is not None and host.ram_lasts_s < foreseen_s:
        yield _say("ram_short", time=span_words(host.ram_lasts_s), span=span_words(TREND_S))
    if free is None:
        return
    if saves is not None and saves.needed_bytes > free:
        yield _say("disk_short.saves", need=_size(saves.needed_bytes), free=_size(free))
    # Of a run that has not yet as many checkpoints as it keeps, the pace is not the one to come.
    elif host.disk_lasts_s is not None and host.disk_lasts_s < foreseen_s and not (saves and saves.grows):
        yield _say("disk_short.trend", time=span_words(host.disk_lasts_s), span=span_words(TREND_S))
    elif free < DISK_SHORT_BYTES:
        yield _say("disk_short", size=_size(free))


def _size(size: int) -> str:
    """In MiB where GiB would round it to nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / 1024**2:.1f} MiB"
