"""Advice about the training itself: its loss, its pace, whether it goes on at all, and its memory against the plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from trainwiz.core.language import tr, trn
from trainwiz.core.run.advice import Advice
from trainwiz.core.run.phase import PhaseNow
from trainwiz.core.run.state import HEARTBEAT_LOST_S
from trainwiz.core.telemetry.course import Course
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.snapshot import Planned
from trainwiz.core.telemetry.spans import span_words

GIB = 1024**3
STALLED_PAUSES = 5
"""No new row for so many of the usual pauses between two rows,"""
STALLED_S = 120.0
"""and for this long beyond one of them, is worth a word."""
RISING_EVALUATIONS = 3
GRADIENT_SHARE = 0.05


def loss_advice(
    metrics: Mapping[str, MetricSummary], steps: Mapping[str, tuple[float, ...]], course: Course
) -> Iterable[Advice]:
    """Only what is certain: no number, higher than it began, an evaluation that rises and rises."""
    summary = metrics.get("loss")
    if summary is not None and summary.non_finite:
        yield from _not_a_number(summary, steps.get("loss", ()))
    yield from _gradients(metrics)
    then_and_now = course.losses_then_and_now
    if then_and_now is not None:
        then, now = then_and_now
        reach = course.first_losses_reach
        if reach is not None and now > reach:
            yield Advice(
                "loss_rises",
                "warning",
                tr(
                    "The loss is higher than at the start: {now} now, {then} at first.",
                    now=f"{now:.4g}",
                    then=f"{then:.4g}",
                ),
                tr("A lower learning rate or a longer warm-up may help."),
            )
    newest = course.evaluation_losses[-RISING_EVALUATIONS - 1 :]
    if len(newest) > RISING_EVALUATIONS and all(a < b for a, b in itertools.pairwise(newest)):
        yield Advice(
            "evaluation_rises",
            "note",
            tr(
                "The evaluation loss rose {n} times in a row: {first} to {last}.",
                n=RISING_EVALUATIONS,
                first=f"{newest[0]:.4g}",
                last=f"{newest[-1]:.4g}",
            ),
            tr("An earlier checkpoint may be the better model."),
        )


def _not_a_number(summary: MetricSummary, steps: tuple[float, ...]) -> Iterable[Advice]:
    first = f"{steps[0]:,.0f}" if steps else None
    remedy = tr(
        "A lower learning rate may help, and in fp16 a wider number format; the last checkpoint before it is still good."
    )
    if summary.count == summary.non_finite:
        remedy = tr("Look at the data, the labels and the precision.")
        yield Advice("nan_loss", "error", tr("The loss was never a number."), remedy)
    elif summary.last is not None and summary.last != summary.last:
        message = tr("The loss is not a number now.")
        if first is not None:
            message = tr("The loss is not a number now, first at step {step}.", step=first)
        yield Advice("nan_loss", "error", message, remedy)
    else:
        yield Advice("nan_loss", "warning", _was_not_a_number(summary.non_finite, first))


def _was_not_a_number(count: int, first: str | None) -> str:
    if first is None:
        return trn("The loss was not a number once.", "The loss was not a number {n} times.", count, n=f"{count:,}")
    return trn(
        "The loss was not a number once, at step {step}.",
        "The loss was not a number {n} times, first at step {step}.",
        count,
        n=f"{count:,}",
        step=first,
    )


def _gradients(metrics: Mapping[str, MetricSummary]) -> Iterable[Advice]:
    """A few are usual with fp16, whose scaler tries too large a scale now and then."""
    norm = metrics.get("grad_norm")
    if norm is not None and norm.non_finite > 2 and norm.non_finite > GRADIENT_SHARE * norm.count:
        share = 100 * norm.non_finite / norm.count
        yield Advice(
            "gradient_not_finite",
            "warning",
            tr(
                "The gradient was not finite in {share} % of the logged steps; fp16 leaves such steps out.",
                share=f"{share:.0f}",
            ),
        )


def pace_advice(pace: Pace, planned: Planned) -> Iterable[Advice]:
    if pace.step_s is None or planned.step_high_s is None or planned.step_low_s is None:
        return
    if pace.step_s > planned.step_high_s * 1.1:
        yield Advice(
            "slower_than_plan",
            "warning",
            tr("Steps take {times} times as long as planned.", times=f"{pace.step_s / planned.step_high_s:.1f}"),
        )
    elif pace.step_s < planned.step_low_s * 0.9:
        times = f"{planned.step_low_s / pace.step_s:.1f}"
        yield Advice("faster_than_plan", "ok", tr("Steps are {times} times as fast as planned.", times=times))


def stall_advice(
    status: str, course: Course, now_s: float | None, began_s: float | None, phase: PhaseNow | None = None
) -> Iterable[Advice]:
    """A run that is said to go on and logs nothing for much longer than it used to.

    `began_s`: when this attempt began; the rows before are another's. `phase`: what the training says
    of itself; work that is no step is no stall, and the time of it does not count.
    """
    pause_s = course.pause_s
    if status != "running" or now_s is None or course.newest_s is None or pause_s is None:
        return
    if phase is not None and phase.phase != "training":
        return
    silent_s = now_s - max(course.newest_s, began_s or 0.0, phase.since_s if phase else 0.0)
    if silent_s > max(STALLED_PAUSES * pause_s, pause_s + STALLED_S):
        yield Advice(
            "stalled",
            "warning",
            tr(
                "No step was logged for {time}; usually one comes every {pause}.",
                time=span_words(silent_s),
                pause=span_words(pause_s),
            ),
            tr("It may be evaluating or saving; if the log says neither, one of its processes may hang.")
            if phase is None
            else tr("One of its processes may hang: the log may say which. A stop and a resume start it anew."),
        )


def silence_advice(now_s: float | None, heartbeat_s: float | None) -> Iterable[Advice]:
    """The keeper of an active run lives and does not write: its readings are old, and a stop has to wait."""
    if now_s is None or heartbeat_s is None or now_s - heartbeat_s <= HEARTBEAT_LOST_S:
        return
    yield Advice(
        "keeper_silent",
        "warning",
        tr(
            "The supervisor has written nothing for {time}: what is shown of status and machine is from then.",
            time=span_words(now_s - heartbeat_s),
        ),
        tr(
            "It is suspended (`kill -CONT` wakes it), or cannot write (disk full?); a stop takes effect once it goes on."
        ),
    )


def memory_advice(planned: Planned, peak_bytes: int | None, *, stepped: bool) -> Iterable[Advice]:
    """The plan speaks of a training step: before the first one only too much of it says anything."""
    expected, low, high = planned.memory_bytes, planned.memory_low_bytes, planned.memory_high_bytes
    if peak_bytes is None or expected is None or expected <= 0:
        return
    figures = {"peak": f"{peak_bytes / GIB:.1f}", "planned": f"{expected / GIB:.1f}"}
    figures["share"] = f"{abs(peak_bytes / expected - 1) * 100:.0f}"
    if peak_bytes > (high or expected):
        yield Advice(
            "memory_above_plan",
            "warning",
            tr("Memory is {share}% above the plan: {peak} GiB at its peak, planned {planned}.", **figures),
        )
    elif not stepped:
        return
    elif peak_bytes < (low or expected):
        yield Advice(
            "memory_below_plan",
            "ok",
            tr("Memory is {share}% below the plan: {peak} GiB at its peak, planned {planned}.", **figures),
        )
    else:
        yield Advice(
            "memory_as_planned", "ok", tr("Memory is as planned: {peak} GiB at its peak, planned {planned}.", **figures)
        )
