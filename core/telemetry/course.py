"""Course: how a training went lately, as far as advice asks: its newest rows, its first ones, its evaluations."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from trainwiz.core.numbers import finite

COMPARED_ROWS = 20
"""So many of the first losses are compared with so many of the newest."""
PAUSES = 50
EVALUATIONS_KEPT = 8
LOOKED_AT_ROWS = 400
"""Of rows that come at once; enough for the newest losses, where most of these are not numbers too."""

Point = tuple[float, float]


class Course:
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
                self._rewind(finite(row["resumed_from"]))
            elif "loss" in row:
                trained.append(row)
            elif "eval_loss" in row:
                self._add_evaluation(row)
        self._add_trained(trained)
        if rows:
            self.newest_s = finite(rows[-1].get("time_s"), self.newest_s)

    def _add_trained(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Of many rows only the first and the newest stay; those between them are not looked at."""
        start = 0
        while start < len(rows) and len(self._first) < COMPARED_ROWS:
            self._add(rows[start])
            start += 1
        for row in rows[max(start, len(rows) - LOOKED_AT_ROWS) :]:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        time_s = finite(row.get("time_s"))
        if time_s is not None:
            self.newest_s = time_s
            self._times.append(time_s)
        step, loss = finite(row.get("step")), finite(row["loss"])
        if step is None or loss is None:
            return
        if len(self._first) < COMPARED_ROWS:
            self._first.append((step, loss))
        else:
            self._newest.append((step, loss))

    def _add_evaluation(self, row: Mapping[str, Any]) -> None:
        self.newest_s = finite(row.get("time_s"), self.newest_s)
        step, loss = finite(row.get("step")), finite(row["eval_loss"])
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
