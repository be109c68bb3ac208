"""Trend: how long something that shrinks will last, judged over as much of the past as is known."""

from __future__ import annotations

import itertools
import statistics

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
