"""Trend: how long something that shrinks will last, judged over as much of the past as is known."""

from __future__ import annotations

MOST_POINTS = 64
"""Kept evenly spread over the time watched: when there are more, every second one goes."""
LEAST_SPAN_S = 180.0
"""A pace is judged over at least this long."""
MOST_SPAN_S = 12 * 3600.0
"""What happened before that says nothing of the pace now."""


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
        """Seconds until nothing is left at the mean pace of the time watched.

        None where it was watched for less than LEAST_SPAN_S, or does not shrink in both halves of that
        time: one large file, or memory that is filled once, is no pace.
        """
        if self._last is None or self.span_s < LEAST_SPAN_S:
            return None
        first, last = self._points[0], self._last
        middle_s = (first[0] + last[0]) / 2
        middle = min(self._points, key=lambda point: abs(point[0] - middle_s))
        if not first[1] > middle[1] > last[1]:
            return None
        return last[1] / (first[1] - last[1]) * self.span_s
