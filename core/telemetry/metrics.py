"""The metrics of a training by their names, and the newest of each tag."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.series import Curve, Series
from trainwiz.core.text import FARTHEST_STEP, number, numbers_finite

PACE_ROWS = RECENT_POINTS = 50
WARM_ROWS = 2
PACE_MARGIN = 1.1
"""Beyond the planned range by which a step is called slower or faster."""
COMPARED_ROWS = 20
"""So many of the first losses are compared with so many of the newest."""
EVALUATIONS_KEPT = 8
MOST_NAMES = 1_000
"""A file with more names than this is not a metrics file; further names are left out."""

FASTEST = 1e12
"""Seconds a step or tokens a second beyond which, or below 0, a file holds no pace."""

NOT_METRICS = frozenset({"step", "epoch", "time_s", "resumed_from"})


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """`count` includes non-finite values; `minimum` and `maximum` are over finite ones."""

    last: float | None
    last_step: float | None
    count: int
    minimum: float | None
    maximum: float | None
    non_finite: int
    whole: bool = False
    """All values were written as integers (counts, bytes)."""

    def to_json(self) -> dict[str, Any]:
        """A non-finite last value is null, as JSON has no number for it; `non_finite` tells of it."""
        return {
            "last": self._json(self.last),
            "count": self.count,
            "min": self._json(self.minimum),
            "max": self._json(self.maximum),
            "non_finite": self.non_finite,
        }

    def _json(self, value: float | None) -> float | int | None:
        known = numbers_finite(value)
        return int(known) if known is not None and self.whole else known


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the run goes, over the last PACE_ROWS logged steps."""

    step_s: float | None
    """Median seconds of one optimizer step, as the training measured it."""
    wall_step_s: float | None
    """Seconds a step by the wall clock, evaluations and saving included."""
    tokens_per_s: float | None
    """Padding included."""
    real_tokens_per_s: float | None
    data_wait: float | None
    """Share of a step spent waiting for data, 0 to 1."""
    settled: bool = True
    """More than the first WARM_ROWS were logged: their steps load kernels and fill the allocator."""

    def against(self, low_s: float | None, high_s: float | None) -> Literal["slower", "faster", "planned"] | None:
        """A step beside what was planned for it; None where either is not known yet."""
        if not self.step_s or low_s is None or high_s is None or not self.settled:
            return None
        if self.step_s > high_s * PACE_MARGIN:
            return "slower"
        return "faster" if self.step_s < low_s * (2 - PACE_MARGIN) else "planned"

    def left_s(self, step: float | None, max_steps: int | None) -> float | None:
        """Until the last step, at the pace of the wall clock where it is known; None where one of the facts is not."""
        step_s = self.wall_step_s or self.step_s
        if step is None or not max_steps or step_s is None:
            return None
        return max(0.0, max_steps - step) * step_s


NO_PACE = Pace(None, None, None, None, None)


def summary_of(s: Series) -> MetricSummary:
    return MetricSummary(s.last, s.last_step, s.count, s.minimum, s.maximum, s.non_finite, s.whole)


@dataclass(frozen=True, slots=True)
class LossTrend:
    """How a training went lately, as far as advice asks."""

    newest_s: float | None = None
    """Unix time of the newest row."""
    pause_s: float | None = None
    """Median seconds between two logged rows; None while there are fewer than four of them."""
    first: tuple[float, ...] = ()
    """The first COMPARED_ROWS losses."""
    newest: tuple[float, ...] = ()
    """As many of the newest; empty before there are twice as many."""
    evaluations: tuple[float, ...] = ()
    """Losses of the newest evaluations, oldest first."""


NO_TREND = LossTrend()
NO_SERIES = Series()


class Metrics:
    """Series of every numeric key. `add_rows` takes rows in file order; a row that holds
    `resumed_from` says that the run went on from that step, and what lies after it is forgotten."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.step: float | None = None
        self.epoch: float | None = None
        self.time_s: float | None = None
        self._recent: deque[Mapping[str, Any]] = deque(maxlen=PACE_ROWS)
        self._first: list[tuple[float, float]] = []
        """Step and value of the first COMPARED_ROWS finite losses."""

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.time_s = numbers_finite(row.get("time_s"), self.time_s)
        resumed_from = number(row.get("resumed_from"))
        if resumed_from is not None and -FARTHEST_STEP < resumed_from < FARTHEST_STEP:
            self._rewind(resumed_from)
            return
        step = number(row.get("step"))
        if step is None or not -FARTHEST_STEP < step < FARTHEST_STEP:
            step = self.step if self.step is not None else 0.0
        if self.step is not None and step < self.step:
            self._rewind(step - 1)
        self.step = step
        self.epoch = numbers_finite(row.get("epoch"), self.epoch)
        if "loss" in row:
            self._recent.append(row if row.get("step") == step else {**row, "step": step})
            if len(self._first) < COMPARED_ROWS and (loss := numbers_finite(row["loss"])) is not None:
                self._first.append((step, loss))
        for name, raw in row.items():
            if name in NOT_METRICS or (value := number(raw)) is None:
                continue
            series = self.series.get(name)
            if series is None:
                if len(self.series) >= MOST_NAMES:
                    continue
                series = self.series[name] = Series()
            series.add(step, value)
            if series.whole:
                series.whole = isinstance(raw, int)

    def _rewind(self, step: float) -> None:
        for series in self.series.values():
            series.rewind(step)
        self.series = {name: series for name, series in self.series.items() if series.count}
        self.step = step
        self._recent.clear()
        self._first = [point for point in self._first if point[0] <= step]

    def summaries(self) -> dict[str, MetricSummary]:
        """By name, in the order of first appearance."""
        return {name: summary_of(series) for name, series in self.series.items()}

    def curve(self, name: str) -> Curve:
        """A frozen copy for drawing; empty for a name that has not appeared."""
        return self.series.get(name, NO_SERIES).curve()

    def non_finite_steps(self, name: str) -> tuple[float, ...]:
        """The first steps at which the metric was not a number."""
        return self.series.get(name, NO_SERIES).non_finite_steps

    def pace(self) -> Pace:
        rows = list(self._recent)
        warm = rows[WARM_ROWS:] or rows[-1:]
        timed = [(row["step"], time_s) for row in rows if (time_s := numbers_finite(row.get("time_s"))) is not None]
        step_s = _median(warm, "step_s")
        data_wait_s = _median(warm, "data_wait_s")
        return Pace(
            step_s=step_s,
            wall_step_s=wall_step_s(timed),
            tokens_per_s=_median(rows[-10:], "tokens_per_s"),
            real_tokens_per_s=_median(rows[-10:], "real_tokens_per_s"),
            data_wait=min(1.0, data_wait_s / step_s) if data_wait_s is not None and step_s else None,
            settled=len(rows) > WARM_ROWS,
        )

    def trend(self) -> LossTrend:
        times = [time_s for row in self._recent if (time_s := numbers_finite(row.get("time_s"))) is not None]
        pauses = [later - earlier for earlier, later in itertools.pairwise(times) if later >= earlier]
        losses = self.series.get("loss", NO_SERIES)
        return LossTrend(
            newest_s=self.time_s,
            pause_s=statistics.median(pauses) if len(pauses) >= 3 else None,
            first=tuple(loss for _, loss in self._first),
            newest=losses.newest(COMPARED_ROWS) if losses.count - losses.non_finite >= 2 * COMPARED_ROWS else (),
            evaluations=self.series.get("eval_loss", NO_SERIES).newest(EVALUATIONS_KEPT),
        )


def wall_step_s(recent: Sequence[tuple[float, float]]) -> float | None:
    """Seconds a step, by step and time of the newest points."""
    if len(recent) < 2 or recent[-1][0] <= recent[0][0] or recent[-1][1] <= recent[0][1]:
        return None
    seconds = (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])
    return seconds if seconds < FASTEST else None


def _median(rows: list[Mapping[str, Any]], key: str) -> float | None:
    known = (numbers_finite(row.get(key)) for row in rows)
    values = [value for value in known if value is not None and 0 <= value < FASTEST]
    return statistics.median_high(values) if values else None


LOSSES = ("loss", "train/loss", "train_loss", "train_loss_step", "training loss", "epoch_loss", "train_loss_epoch")


def loss_name(names: Iterable[str]) -> str | None:
    """The metric that is the training loss, by its name; of several runs the first that has one."""
    names = list(names)
    for wanted in LOSSES:
        for name in names:
            if name == wanted or name.endswith(f"/{wanted}"):
                return name
    return next((name for name in names if "loss" in name.lower()), None)


class TagSeries(Series):
    """One tag. Where a writer goes back to an earlier step (two launches into one folder), the newest pass counts."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = False
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)
        """Step and Unix time of the newest points, all of one session."""
        self._session: object = None

    def add_at(self, step: float, value: float, time_s: float, session: object) -> None:
        if session is not self._session:
            # The pause between two launches is not the time of a step.
            self._session = session
            self.recent.clear()
        self.add(step, value)
        self.recent.append((step, time_s))

    def rewind(self, step: float, *, keep_equal: bool = True) -> None:
        super().rewind(step, keep_equal=keep_equal)
        self.recent.clear()


def last_step(tags: Iterable[Series]) -> int | None:
    """The highest last step of any."""
    return int(max(steps)) if (steps := [tag.last_step for tag in tags if tag.last_step is not None]) else None


class Scalars:
    """By tag, in the order of first appearance; at most MOST_NAMES tags."""

    def __init__(self) -> None:
        self.tags: dict[str, TagSeries] = {}

    def add_all(self, scalars: Iterable[Scalar], *, session: object = None) -> None:
        """`session` is another object for each launch."""
        for tag, step, value, time_s in scalars:
            if tag is None:
                self.purge(step)
                continue
            if tag not in self.tags:
                if len(self.tags) >= MOST_NAMES:
                    continue
                self.tags[tag] = TagSeries()
            self.tags[tag].add_at(step, value, time_s, session)

    def purge(self, step: float) -> None:
        """Forget `step` and all later ones: the writer starts again there."""
        for tag, series in list(self.tags.items()):
            series.rewind(step, keep_equal=False)
            if not series.count:
                del self.tags[tag]

    @property
    def step(self) -> int | None:
        return last_step(self.tags.values())

    def last(self, tag: str) -> float | None:
        return self.tags[tag].last if tag in self.tags else None
