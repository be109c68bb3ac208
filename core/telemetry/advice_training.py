"""Advice about the training: its loss and its pace."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainwiz.core.language import tr, trn
from trainwiz.core.run.attempts import Advice, PhaseNow
from trainwiz.core.run.lost import HEARTBEAT_LOST_S
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.snapshot import Planned
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import numbers_finite

# Trend: how long something that shrinks will last, judged over as much of the past as is known.

MOST_POINTS = 64
"""Kept evenly spread over the time watched: when there are more, every second one goes."""
LEAST_SPAN_S = 180.0
"""A pace is judged over at least this long."""
MOST_SPAN_S = 12 * 3600.0
"""What happened before that says nothing of the pace now."""
PARTS = 5
"""The time watched is looked at in so many parts of equal length."""
LEAST_EVEN = 0.25
"""What shrinks from one part to the next by a smaller share of the pace does not shrink evenly."""


class Trend:
    """Points of (seconds, amount), bounded however many are added."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._every_s = 0.0
        self._last: tuple[float, float] | None = None

    def add(self, time_s: float, amount: float) -> None:
        """Points come in order of time: where the clock was set back, what was before no longer counts."""
        if self._last is not None and time_s < self._last[0]:
            self._points, self._every_s = [], 0.0
        self._last = time_s, amount
        if self._points and time_s - self._points[-1][0] < self._every_s:
            return
        self._points.append(self._last)
        while len(self._points) > 2 and time_s - self._points[1][0] >= MOST_SPAN_S:
            del self._points[0]
        if len(self._points) > MOST_POINTS:
            self._points = self._points[::2]
            self._every_s = 2 * (self._points[-1][0] - self._points[0][0]) / MOST_POINTS

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """What is kept, and the newest one."""
        if self._last is None or self._points[-1] == self._last:
            return tuple(self._points)
        return (*self._points, self._last)

    @property
    def span_s(self) -> float:
        """How long was watched."""
        return self._last[0] - self._points[0][0] if self._last is not None else 0.0

    def lasts_s(self) -> float | None:
        """Seconds until nothing is left at the present pace.

        The medians of PARTS equal parts of the time are compared, so that neither a tooth of a saw nor
        one large file is a pace. Of the pace of the whole time and that of its newer half the lesser
        counts. None where it was watched for less than LEAST_SPAN_S, or does not shrink evenly from
        each part to the next: memory that is filled once at a start is no trend.
        """
        if self._last is None or self.span_s < LEAST_SPAN_S:
            return None
        medians = [_median_point(part) for part in self._parts()]
        if len(medians) < PARTS:
            return None
        pace = min(_pace(medians[0], medians[-1]), _pace(medians[PARTS // 2], medians[-1]))
        if pace <= 0 or min(_pace(a, b) for a, b in itertools.pairwise(medians)) < LEAST_EVEN * pace:
            return None
        return self._last[1] / pace

    def _parts(self) -> list[list[tuple[float, float]]]:
        """The points of each part of the time that has any."""
        points = self.points
        start_s, part_s = points[0][0], self.span_s / PARTS
        numbers = [min(PARTS - 1, int((point[0] - start_s) / part_s)) for point in points]
        found = [[point for point, at in zip(points, numbers, strict=True) if at == part] for part in range(PARTS)]
        return [part for part in found if part]


def _pace(earlier: tuple[float, float], later: tuple[float, float]) -> float:
    return (earlier[1] - later[1]) / (later[0] - earlier[0])


def _median_point(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(median time, median amount)."""
    times, amounts = zip(*points, strict=True)
    return statistics.median(times), statistics.median(amounts)


# LossTrend: how a training went lately, as far as advice asks: its newest rows, its first ones, its evaluations.

COMPARED_ROWS = 20
"""So many of the first losses are compared with so many of the newest."""
PAUSES = 50
EVALUATIONS_KEPT = 8
LOOKED_AT_ROWS = 400
"""Of rows that come at once; enough for the newest losses, where most of these are not numbers too."""

Point = tuple[float, float]


class LossTrend:
    """Takes the rows of metrics.jsonl in file order, many at a time."""

    def __init__(self) -> None:
        self.newest_s: float | None = None
        """Unix time of the newest row."""
        self._first: list[Point] = []
        self._newest: deque[Point] = deque(maxlen=COMPARED_ROWS)
        self._times: deque[float] = deque(maxlen=PAUSES + 1)
        self._evaluations: deque[Point] = deque(maxlen=EVALUATIONS_KEPT)

    def add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Costs little for a row: a long run is read at once."""
        trained: list[Mapping[str, Any]] = []
        for row in rows:
            if "resumed_from" in row:
                self._add_trained(trained)
                trained = []
                self._rewind(numbers_finite(row["resumed_from"]))
            elif "loss" in row:
                trained.append(row)
            elif "eval_loss" in row:
                self._add_evaluation(row)
        self._add_trained(trained)
        if rows:
            self.newest_s = numbers_finite(rows[-1].get("time_s"), self.newest_s)

    def _add_trained(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Of many rows only the first and the newest stay; those between them are not looked at."""
        start = 0
        while start < len(rows) and len(self._first) < COMPARED_ROWS:
            self._add(rows[start])
            start += 1
        for row in rows[max(start, len(rows) - LOOKED_AT_ROWS) :]:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        time_s = numbers_finite(row.get("time_s"))
        if time_s is not None:
            self.newest_s = time_s
            self._times.append(time_s)
        step, loss = numbers_finite(row.get("step")), numbers_finite(row["loss"])
        if step is None or loss is None:
            return
        if len(self._first) < COMPARED_ROWS:
            self._first.append((step, loss))
        else:
            self._newest.append((step, loss))

    def _add_evaluation(self, row: Mapping[str, Any]) -> None:
        self.newest_s = numbers_finite(row.get("time_s"), self.newest_s)
        step, loss = numbers_finite(row.get("step")), numbers_finite(row["eval_loss"])
        if step is not None and loss is not None:
            self._evaluations.append((step, loss))

    def _rewind(self, step: float | None) -> None:
        if step is None:
            return
        self._times.clear()
        self._first = [point for point in self._first if point[0] <= step]
        for points in (self._newest, self._evaluations):
            kept = [point for point in points if point[0] <= step]
            points.clear()
            points.extend(kept)

    @property
    def pause_s(self) -> float | None:
        """Median seconds between two logged rows; None while there are fewer than four of them."""
        times = list(self._times)
        pauses = [later - earlier for earlier, later in itertools.pairwise(times) if later >= earlier]
        return statistics.median(pauses) if len(pauses) >= 3 else None

    @property
    def losses_then_and_now(self) -> tuple[float, float] | None:
        """Medians of the first and the newest COMPARED_ROWS losses; None before there are twice as many."""
        if len(self._newest) < COMPARED_ROWS:
            return None
        return _median(self._first), _median(self._newest)

    @property
    def first_losses_reach(self) -> float | None:
        """The highest of the first losses."""
        return max((loss for _, loss in self._first), default=None)

    @property
    def evaluation_losses(self) -> tuple[float, ...]:
        """Oldest first, the newest EVALUATIONS_KEPT of them."""
        return tuple(loss for _, loss in self._evaluations)


def _median(points: Sequence[Point] | deque[Point]) -> float:
    return statistics.median(loss for _, loss in points)


# Advice about the training itself: its loss, its pace, whether it goes on at all, and its memory against the plan.

GIB = 1024**3
STALLED_PAUSES = 5
"""No new row for so many of the usual pauses between two rows,"""
STALLED_S = 120.0
"""and for this long beyond one of them, is worth a word."""
RISING_EVALUATIONS = 3
GRADIENT_SHARE = 0.05


def loss_advice(
    metrics: Mapping[str, MetricSummary], steps: Mapping[str, tuple[float, ...]], loss_trend: LossTrend
) -> Iterable[Advice]:
    """Only what is certain: no number, higher than it began, an evaluation that rises and rises."""
    summary = metrics.get("loss")
    if summary is not None and summary.non_finite:
        yield from _not_a_number(summary, steps.get("loss", ()))
    yield from _gradients(metrics)
    then_and_now = loss_trend.losses_then_and_now
    if then_and_now is not None:
        then, now = then_and_now
        reach = loss_trend.first_losses_reach
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
    newest = loss_trend.evaluation_losses[-RISING_EVALUATIONS - 1 :]
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
    status: str, loss_trend: LossTrend, now_s: float | None, began_s: float | None, phase: PhaseNow | None = None
) -> Iterable[Advice]:
    """A run that is said to go on and logs nothing for much longer than it used to.

    `began_s`: when this attempt began; the rows before are another's. `phase`: what the training says
    of itself; work that is no step is no stall, and the time of it does not count.
    """
    pause_s = loss_trend.pause_s
    if status != "running" or now_s is None or loss_trend.newest_s is None or pause_s is None:
        return
    if phase is not None and phase.phase != "training":
        return
    silent_s = now_s - max(loss_trend.newest_s, began_s or 0.0, phase.since_s if phase else 0.0)
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
