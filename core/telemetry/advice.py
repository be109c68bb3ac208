"""Advice: what a snapshot has to say, as a table of rules and one of sentences; worst first."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from trainwiz.core.estimate.host import USUAL_PREFETCH, loading_ratio, workers_for
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.run.attempts import Advice, AdviceLevel, PhaseNow, advice_of
from trainwiz.core.run.lost import HEARTBEAT_LOST_S
from trainwiz.core.run.state import ENDED
from trainwiz.core.telemetry.machine import TREND_S, limited_by_heat
from trainwiz.core.telemetry.metrics import NO_TREND, LossTrend, MetricSummary, Pace, loss_name
from trainwiz.core.telemetry.run_setup import RunSetup, Saves
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, Snapshot, without_parents
from trainwiz.core.telemetry.words import first_of, span_words

GIB = 1024**3
NEARLY_FULL = 0.95
STALLED_PAUSES = 5
"""No new row for so many of the usual pauses between two rows,"""
STALLED_S = 120.0
"""and for this long beyond one of them, is worth a word."""
RISING_EVALUATIONS = 3
GRADIENT_SHARE = 0.05
DATA_WAIT_SHARE = 0.25
"""Of a step: more waiting than this is worth a word."""
DISK_SHORT_BYTES = 2 * GIB
FORESEEN_S = 24 * TREND_S
"""What lasts longer at the pace of the last minutes is not spoken of: that pace is not believed for so long."""
IDLE_S = 120.0
OTHERS_BYTES = GIB // 4
"""A desktop takes that much; it is no other job."""
OTHERS_NAMED = 3
LOST = "GPU is lost"
"""In the reason of core/hardware/nvml.py for a card that is gone; records hold it in English."""
T = TypeVar("T")

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}
MOMENTARY = frozenset({
    "stalled", "ram_full", "ram_short", "disk_short", "checkpoint_does_not_fit", "gpu_lost", "gpu_unreadable", "heat",
    "power_brake", "sensors_silent", "waiting_for_disk",
})  # fmt: skip
"""Codes that are about a moment of a run that goes on; a keeper that was killed could not take them back."""

SEVERITIES: Mapping[str, AdviceLevel] = {
    "nan_loss": "error", "gpu_lost": "error", "checkpoint_does_not_fit": "error", "evaluation_rises": "note",
    "faster_than_plan": "note", "memory_below_plan": "note", "others_on_gpu": "note",
    "memory_as_planned": "ok",
}  # fmt: skip
"""By code; all others are warnings. What is outside of the plan is never "ok"."""
SAYINGS: Mapping[str, str] = {
    "nan_loss.never": mark("The loss was NaN or infinite in every logged step."),
    "nan_loss.since": mark("The loss is NaN now; the first NaN or infinite loss was at step {step}."),
    "gradient_not_finite": mark(
        "The gradient was NaN or infinite in {share}% of the logged steps; fp16 skips such steps."
    ),
    "loss_rises": mark("The loss is higher than at the start: {now} now, {then} at the start."),
    "evaluation_rises": mark("The evaluation loss rose {n} times in a row: from {first} to {last}."),
    "slower_than_plan": mark("Steps take {times}x as long as planned."),
    "faster_than_plan": mark("Steps are {times}x as fast as planned."),
    "stalled": mark("No step was logged for {time}; usually there is one every {pause}."),
    "keeper_silent": mark(
        "The supervisor has written nothing for {time}: the status and machine readings shown are from that time."
    ),
    "memory_above_plan": mark("Memory is {share}% above the plan: peak {peak} GiB, planned {planned}."),
    "memory_below_plan": mark("Memory is {share}% below the plan: peak {peak} GiB, planned {planned}."),
    "memory_as_planned": mark("Memory is as planned: peak {peak} GiB, planned {planned}."),
    "gpu_lost": mark("{gpus} cannot be read: {reason}."),
    "gpu_unreadable": mark("{gpus} cannot be read: {reason}."),
    "heat": mark("{gpus} throttled by heat."),
    "power_brake": mark("{gpus} throttled by the hardware."),
    "others_on_gpu": mark("Other processes use {size} GiB of {gpus}: {names}."),
    "checkpoint_does_not_fit": mark(
        "The next checkpoint does not fit: the last one takes {size}, and {free} of disk space is free."
    ),
    "disk_short.saves": mark(
        "The disk will be full before the run ends: checkpoints and model still need {need}, and {free} is free; "
        "the save at step {step}, in about {time}, does not fit."
    ),
    "disk_short.trend": mark("The disk will be full in {time} at the rate of the last {span}."),
    "disk_short.now": mark("Only {size} of disk space is free."),
    "ram_full": mark("RAM is nearly full: {used} of {total}."),
    "ram_short": mark("RAM usage is growing: full in {time} at the rate of the last {span}."),
    "data_wait": mark("Steps wait {share}% of their time for data."),
}
"""Code, or which sentence of it -> the sentence."""
REMEDIES: Mapping[str, str] = {
    "nan_loss": mark(
        "A lower learning rate may help, and with fp16 a format with a wider range; the last checkpoint before it "
        "is still good."
    ),
    "nan_loss.never": mark("Check the data, the labels and the precision."),
    "loss_rises": mark("A lower learning rate or a longer warmup may help."),
    "evaluation_rises": mark("An earlier checkpoint may be the better model."),
    "stalled": mark(
        "One of its processes may be hanging: the log may show which. To restart it, stop and resume the run."
    ),
    "stalled.silent": mark(
        "It may be evaluating or saving; if the log shows neither, one of its processes may be hanging."
    ),
    "keeper_silent": mark(
        "It is suspended (`kill -CONT` resumes it), or cannot write (disk full?); a stop takes effect once it "
        "continues."
    ),
    "gpu_lost": mark("Computations on it fail or hang: restart the machine, then resume the run."),
    "heat": mark("Better airflow, a cleaner fan or a lower power limit helps."),
    "power_brake": mark("The power supply or a cable may not deliver enough."),
    "others_on_gpu": mark("They take memory and time from this training."),
    "checkpoint_does_not_fit": mark("Free disk space: older checkpoints of this run or of others can be deleted."),
    "disk_short.saves": mark("Free {size} on that disk: `trainwiz runs list` shows older runs."),
    "disk_short.trend": mark("Keep fewer checkpoints, save less often, or free disk space."),
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
    advice = [item for rule in (RULES if ended else (*RULES, *LIVE_RULES)) for item in rule(snapshot)]
    said = [item for item in advice_of(recorded) if not ended or item.code not in MOMENTARY]
    codes = {item.code for item in said}
    return worst_first([item for item in advice if item.code not in codes], said)


def worst_first(*advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """All of it once."""
    every = dict.fromkeys(item for some in advice for item in some)
    return tuple(sorted(every, key=lambda item: LEVELS[item.level]))


# The training: its loss, its pace, its memory against the plan, whether it goes on at all.


def loss_advice(
    metrics: Mapping[str, MetricSummary], non_finite_steps: Sequence[float], loss_trend: LossTrend, name: str = "loss"
) -> Iterable[Advice]:
    """Only what is certain: no number, higher than it began, an evaluation that rises and rises."""
    loss, norm = metrics.get(name), metrics.get("grad_norm")
    if loss is not None and loss.non_finite:
        yield _not_a_number(loss, f"{non_finite_steps[0]:,.0f}" if non_finite_steps else "?")
    # A few are usual with fp16, whose scaler tries too large a scale now and then.
    if norm is not None and norm.non_finite > 2 and norm.non_finite > GRADIENT_SHARE * norm.count:
        yield _say("gradient_not_finite", share=f"{100 * norm.non_finite / norm.count:.0f}")
    if loss_trend.newest and (now := statistics.median(loss_trend.newest)) > max(loss_trend.first):
        yield _say("loss_rises", then=f"{statistics.median(loss_trend.first):.4g}", now=f"{now:.4g}")
    newest = loss_trend.evaluations[-RISING_EVALUATIONS - 1 :]
    if len(newest) > RISING_EVALUATIONS and all(a < b for a, b in itertools.pairwise(newest)):
        yield _say("evaluation_rises", n=RISING_EVALUATIONS, first=f"{newest[0]:.4g}", last=f"{newest[-1]:.4g}")


def _not_a_number(loss: MetricSummary, first: str) -> Advice:
    if loss.count == loss.non_finite:
        return _say("nan_loss.never")
    if loss.last is not None and loss.last != loss.last:
        return _say("nan_loss.since", step=first)
    text = trn(
        "The loss was NaN or infinite once, at step {step}.",
        "The loss was NaN or infinite {n} times, first at step {step}.",
        loss.non_finite,
        n=f"{loss.non_finite:,}",
        step=first,
    )
    return Advice("nan_loss", "warning", text)


def _loss_of(snapshot: Snapshot) -> Iterable[Advice]:
    if snapshot.source == "run":
        return loss_advice(snapshot.metrics, snapshot.non_finite_steps, snapshot.loss_trend)
    # Others name their metrics as they like, and their loss alone is known for what it is.
    name = loss_name(snapshot.metrics) or ""
    loss = {name: snapshot.metrics[name]} if name else {}
    return loss_advice(loss, snapshot.non_finite_steps, NO_TREND, name)


def _pace_of(snapshot: Snapshot) -> Iterable[Advice]:
    pace, planned = snapshot.pace, snapshot.planned
    low_s, high_s, seconds = planned.step_low_s or 0.0, planned.step_high_s or 0.0, pace.step_s or 0.0
    match pace.against(planned.step_low_s, planned.step_high_s):
        case "slower":
            yield _say("slower_than_plan", times=f"{seconds / high_s:.1f}")
        case "faster":
            yield _say("faster_than_plan", times=f"{low_s / seconds:.1f}")


def _memory_of(snapshot: Snapshot) -> Iterable[Advice]:
    """The plan speaks of a training step: before the first one only too much of it says anything."""
    planned, peak = snapshot.planned, snapshot.peak_memory_bytes
    expected = planned.memory_bytes
    if peak is None or expected is None or expected <= 0:
        return
    low, high = planned.memory_low_bytes or expected, planned.memory_high_bytes or expected
    where = "above_plan" if peak > high else "below_plan" if peak < low else "as_planned"
    if snapshot.metrics or where == "above_plan":
        share = f"{abs(peak / expected - 1) * 100:.0f}"
        yield _say(f"memory_{where}", peak=f"{peak / GIB:.1f}", planned=f"{expected / GIB:.1f}", share=share)


def stall_advice(
    loss_trend: LossTrend, now_s: float, began_s: float | None, phase: PhaseNow | None
) -> Iterable[Advice]:
    """A run that is said to go on and logs nothing for much longer than it used to.

    `began_s`: when this attempt began; the rows before are another's. `phase`: what the training says
    of itself; work that is no step is no stall, and the time of it does not count.
    """
    pause_s = loss_trend.pause_s
    if loss_trend.newest_s is None or pause_s is None:
        return
    if phase is not None and phase.phase != "training":
        return
    silent_s = now_s - max(loss_trend.newest_s, began_s or 0.0, phase.since_s if phase else 0.0)
    if silent_s > max(STALLED_PAUSES * pause_s, pause_s + STALLED_S):
        # The job of another tool does not say what it is at.
        saying = "stalled.silent" if phase is None else "stalled"
        yield _say(saying, time=span_words(silent_s), pause=span_words(pause_s))


def _stall_of(snapshot: Snapshot) -> Iterable[Advice]:
    if snapshot.behind or snapshot.status != "running":
        return ()
    began_s = snapshot.attempts[-1].started_s if snapshot.attempts else None
    return stall_advice(snapshot.loss_trend, snapshot.time_s, began_s, snapshot.phase)


def _silence_of(snapshot: Snapshot) -> Iterable[Advice]:
    """The keeper of an active run lives and does not write: its readings are old, and a stop has to wait."""
    silent_s = 0.0 if snapshot.heartbeat_s is None else snapshot.time_s - snapshot.heartbeat_s
    if silent_s > HEARTBEAT_LOST_S:
        yield _say("keeper_silent", time=span_words(silent_s))


def data_wait_advice(pace: Pace, setup: RunSetup) -> Iterable[Advice]:
    """An input that starves the training, and the number of loader workers that would help, within the cores."""
    step_s, share, workers = pace.step_s, pace.data_wait, setup.workers
    if share is None or share <= DATA_WAIT_SHARE:
        return
    percent = f"{share * 100:.0f}"
    if step_s is None or workers is None:
        yield _say("data_wait", share=percent)
        return
    ratio = loading_ratio(step_s, share * step_s, workers, setup.accumulation, setup.prefetch or USUAL_PREFETCH)
    needed = max(workers + 1, workers_for(ratio))
    if setup.cpu_cores is not None:
        # Each training process keeps a core for itself.
        needed = min(needed, setup.cpu_cores // setup.processes - 1)
    saying = "data_wait.workers" if needed > workers else "data_wait.no_more"
    yield _say(saying, share=percent, now=workers, needed=needed)


# The machine: its cards, its memory, its disk.


def gpu_advice(gpus: Sequence[GpuReading], *, status: str, now_s: float) -> Iterable[Advice]:
    """One sentence for each trouble, whichever cards have it."""
    for problem, cards in _alike((gpu.problem or None, gpu) for gpu in gpus if not gpu.is_slice).items():
        saying = "gpu_lost" if LOST in problem else "gpu_unreadable"
        yield _say(saying, gpus=_names(cards), reason=tr(problem))
    readable = [gpu for gpu in gpus if not gpu.problem]
    for code, cards in _alike((_held_back_by(gpu), gpu) for gpu in readable).items():
        yield _say(code, gpus=_names(cards))
    readable = without_parents(readable)
    full = [gpu for gpu in readable if _is_nearly(gpu.memory_used_bytes, gpu.memory_total_bytes)]
    if full:
        message = trn(
            "{gpus} is nearly full: a longer batch could run out of memory.",
            "{gpus} are nearly full: a longer batch could run out of memory.",
            len(full),
            gpus=_names(full),
        )
        yield Advice("gpu_memory_full", "warning", message)
    if status == "running":
        # Of the job are those that hold its memory, and the only card where nobody is known on it.
        alone = len(readable) == 1 and not readable[0].processes
        yield from _idle([gpu for gpu in readable if gpu.job_memory_bytes or alone], now_s)
    yield from _others(readable)


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


def _held_back_by(gpu: GpuReading) -> str | None:
    """The code of what slows the card against its will, the worst where several do."""
    if limited_by_heat(gpu.throttle_reasons):
        return "heat"
    return "power_brake" if {"power brake", "hardware slowdown"} & set(gpu.throttle_reasons) else None


def _is_nearly(used: int | None, total: int | None) -> bool:
    return bool(used and total and used > NEARLY_FULL * total)


def _others(gpus: Sequence[GpuReading]) -> Iterable[Advice]:
    """Where no process of the job is known on a card, none is known to be another's either."""
    shared, others = list[GpuReading](), list[GpuProcess]()
    for gpu in gpus:
        strangers = [process for process in gpu.processes if not process.mine]
        held = sum(process.memory_used_bytes or 0 for process in strangers)
        if held >= OTHERS_BYTES and len(strangers) < len(gpu.processes):
            shared.append(gpu)
            others += strangers
    if not shared:
        return
    others.sort(key=lambda process: -(process.memory_used_bytes or 0))
    names = list(dict.fromkeys(process.name or tr("process {pid}", pid=process.pid) for process in others))
    size = f"{sum(process.memory_used_bytes or 0 for process in others) / GIB:.1f}"
    yield _say("others_on_gpu", size=size, gpus=_names(shared), names=first_of(names, OTHERS_NAMED))


def _idle(gpus: Sequence[GpuReading], now_s: float) -> Iterable[Advice]:
    idle = {gpu.index: gpu for gpu in gpus if gpu.idle_since_s is not None and now_s - gpu.idle_since_s > IDLE_S}
    if not idle:
        return
    message = trn(
        "{gpus} has been idle for {time}.",
        "{gpus} have been idle for {time}.",
        len(idle),
        gpus=_names(list(idle.values())),
        time=span_words(min(now_s - (gpu.idle_since_s or now_s) for gpu in idle.values())),
    )
    remedy = tr("The log may show why: loading, saving, waiting for data or for another process.")
    yield Advice("gpu_idle", "warning", message, remedy)


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
    foreseen_s = FORESEEN_S if left_s is None else min(FORESEEN_S, left_s)
    used, total = host.ram_used_bytes, host.ram_total_bytes
    if used and total and used > NEARLY_FULL * total:
        yield _say("ram_full", used=_size(used), total=_size(total))
    elif host.ram_lasts_s is not None and host.ram_lasts_s < foreseen_s:
        yield _say("ram_short", time=span_words(host.ram_lasts_s), span=span_words(TREND_S))
    free = host.disk_free_bytes
    if free is not None and checkpoint_bytes is not None and checkpoint_bytes > free:
        yield _say("checkpoint_does_not_fit", size=_size(checkpoint_bytes), free=_size(free))
    failing = saves.fails_at_step(free) if saves is not None and free is not None else None
    if saves is not None and free is not None and step_s is not None and failing is not None:
        yield _say(
            "disk_short.saves",
            need=_size(saves.needed_bytes),
            free=_size(free),
            step=f"{failing:,}",
            time=span_words(max(0, failing - saves.step) * step_s),
            size=_size(saves.needed_bytes - free),
        )
    # Of a run that has not yet as many checkpoints as it keeps, the pace is not the one to come.
    elif host.disk_lasts_s is not None and host.disk_lasts_s < foreseen_s and not (saves and saves.grows):
        yield _say("disk_short.trend", time=span_words(host.disk_lasts_s), span=span_words(TREND_S))
    elif free is not None and free < DISK_SHORT_BYTES:
        yield _say("disk_short.now", size=_size(free))


def _size(size: int) -> str:
    """In MiB where GiB would round it to nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / 1024**2:.1f} MiB"


Rule = Callable[[Snapshot], Iterable[Advice]]
RULES: tuple[Rule, ...] = (
    _loss_of,
    _pace_of,
    lambda look: data_wait_advice(look.pace, look.setup),
    _memory_of,
)
LIVE_RULES: tuple[Rule, ...] = (
    _stall_of,
    _silence_of,
    lambda look: gpu_advice(look.used_gpus, status=look.status, now_s=look.time_s),
    lambda look: host_advice(
        look.host, look.checkpoint_bytes, saves=look.saves, step_s=look.pace.wall_step_s, left_s=look.left_s
    ),
)
"""Of a training that goes on: an ended one has no machine."""
