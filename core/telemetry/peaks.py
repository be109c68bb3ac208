"""The highest values so far, and how long what shrinks will last."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.text import numbers_finite, object_in, objects_in, texts_in, whole_in

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


# Peaks: what all samples of a run together say, in few words, so that nobody has to read all of them.

HARMLESS_THROTTLING = ("idle", "clock setting", "sync boost")
IDLE_PERCENT = 5.0
"""Below this a card does nothing."""
GAP_S = 120.0
"""Nothing is said to have lasted over a longer time without samples."""


PEAKS_OF_CARDS = ("peak_gpu_bytes", "peak_job_gpu_bytes")
PEAKS_OF_RAM = ("peak_job_rss_bytes", "peak_trainer_rss_bytes", "peak_trainers_rss_bytes")
BEGINNINGS = ("throttled_since_s", "idle_since_s")
"""What is kept in a record, as it is called there and here."""


class Peaks:
    """Takes samples in order of time. The recorder writes `to_json` beside some of its samples (key
    `so_far`), so that a viewer that enters the file near its end, and a file whose older samples were
    thinned out, know the peaks of the whole run.
    """

    def __init__(self) -> None:
        self.peak_gpu_bytes: dict[str, int] = {}
        """Highest memory use seen of each GPU, by its key."""
        self.peak_job_gpu_bytes: dict[str, int] = {}
        """What the processes of the run held at most of each card on which they were seen to hold memory."""
        self.peak_job_rss_bytes = 0
        self.peak_trainer_rss_bytes = 0
        """Of the fullest training process."""
        self.peak_trainers_rss_bytes = 0
        """Of all training processes together."""
        self.throttled_since_s: dict[str, float] = {}
        self.idle_since_s: dict[str, float] = {}
        self.disk = Trend()
        """Free bytes."""
        self.ram = Trend()
        """Bytes that are not used."""
        self._time_s: float | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        time_s = numbers_finite(row.get("time_s"))
        if time_s is not None:
            if self._time_s is not None and not 0 <= time_s - self._time_s <= GAP_S:
                self.throttled_since_s.clear()
                self.idle_since_s.clear()
            self._time_s = time_s
        self._take(object_in(row.get("so_far")))
        processes = objects_in(row.get("processes"))
        pids = pids_of(processes)
        for index, gpu in enumerate(objects_in(row.get("gpus"))):
            self._add_gpu(gpu_key(gpu, index), gpu, pids, time_s)
        if time_s is not None:
            self._add_host(object_in(row.get("host")), time_s)
        sizes = [(process.get("role"), numbers_finite(process.get("rss_bytes")) or 0.0) for process in processes]
        self.peak_job_rss_bytes = max(self.peak_job_rss_bytes, int(sum(size for _, size in sizes)))
        trainers = [size for role, size in sizes if role == "trainer"]
        self.peak_trainer_rss_bytes = max(self.peak_trainer_rss_bytes, int(max(trainers, default=0)))
        self.peak_trainers_rss_bytes = max(self.peak_trainers_rss_bytes, int(sum(trainers)))

    def _add_host(self, host: Mapping[str, Any], time_s: float) -> None:
        free = numbers_finite(host.get("disk_free_bytes"))
        if free is not None:
            self.disk.add(time_s, free)
        used, total = numbers_finite(host.get("ram_used_bytes")), numbers_finite(host.get("ram_total_bytes"))
        if used is not None and total is not None:
            self.ram.add(time_s, total - used)

    def _add_gpu(self, key: str, gpu: Mapping[str, Any], pids: set[int], time_s: float | None) -> None:
        used = numbers_finite(gpu.get("memory_used_bytes"))
        if used is not None:
            self.peak_gpu_bytes[key] = max(self.peak_gpu_bytes.get(key, 0), int(used))
        own = job_memory(gpu, pids)
        if own:
            self.peak_job_gpu_bytes[key] = max(self.peak_job_gpu_bytes.get(key, 0), own)
        busy = numbers_finite(gpu.get("utilization_percent"))
        _since(self.throttled_since_s, key, time_s, bool(real_throttling(texts_in(gpu.get("throttle_reasons")))))
        _since(self.idle_since_s, key, time_s, busy is not None and busy < IDLE_PERCENT)

    def to_json(self) -> dict[str, Any]:
        """The object that `add` takes up again from a row's `so_far`."""
        kept = {name: getattr(self, name) for name in (*PEAKS_OF_CARDS, *PEAKS_OF_RAM, *BEGINNINGS)}
        return {**kept, "disk_free": _pairs(self.disk), "ram_free": _pairs(self.ram)}

    def _take(self, document: Mapping[str, Any]) -> None:
        if not document:
            return
        for name in PEAKS_OF_CARDS:
            peaks: dict[str, int] = getattr(self, name)
            for key, value in object_in(document.get(name)).items():
                peaks[str(key)] = max(peaks.get(str(key), 0), whole_in(value) or 0)
        for name in PEAKS_OF_RAM:
            setattr(self, name, max(getattr(self, name), whole_in(document.get(name)) or 0))
        for name in BEGINNINGS:
            since: dict[str, float] = getattr(self, name)
            for key, value in object_in(document.get(name)).items():
                began_s = numbers_finite(value)
                if began_s is not None:
                    since[str(key)] = min(since.get(str(key), began_s), began_s)
        self.disk = _lengthened(self.disk, document.get("disk_free"))
        self.ram = _lengthened(self.ram, document.get("ram_free"))


def _pairs(trend: Trend) -> list[list[float]]:
    return [[time_s, int(amount)] for time_s, amount in trend.points]


def _lengthened(trend: Trend, points: Any) -> Trend:
    """`trend` with those of `points` that lie before all that it knows."""
    known = trend.points
    longer = Trend()
    for pair in points if isinstance(points, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            time_s, amount = map(numbers_finite, pair)
            if time_s is not None and amount is not None and (not known or time_s < known[0][0]):
                longer.add(time_s, amount)
    for point in known:
        longer.add(*point)
    return longer


def _since(times: dict[str, float], key: str, time_s: float | None, holds: bool) -> None:
    if not holds:
        times.pop(key, None)
    elif time_s is not None:
        times.setdefault(key, time_s)


def gpu_key(gpu: Mapping[str, Any], index: int) -> str:
    """The UUID, or the number of a card whose UUID is not known."""
    return str(gpu.get("uuid") or f"index {gpu.get('index', index)}")


def pids_of(processes: Iterable[Mapping[str, Any]]) -> set[int]:
    return {pid for process in processes if (pid := whole_in(process.get("pid"))) is not None}


def job_memory(gpu: Mapping[str, Any], pids: set[int]) -> int | None:
    """Bytes that the processes `pids` hold of the card; None where none of them is known to hold any."""
    sizes = [
        int(size)
        for process in objects_in(gpu.get("processes"))
        if (size := numbers_finite(process.get("memory_used_bytes"))) is not None
        and whole_in(process.get("pid")) in pids
    ]
    return sum(sizes) if sizes else None


def real_throttling(reasons: Iterable[str]) -> tuple[str, ...]:
    """The reasons that slow a busy card; an idle card and clocks that the user set are none."""
    return tuple(reason for reason in reasons if not any(word in reason.lower() for word in HARMLESS_THROTTLING))


def limited_by_heat(reasons: Iterable[str]) -> bool:
    """Whether heat is among the reasons, in the words of core/telemetry/gpu.py."""
    return any("heat" in reason.lower() for reason in reasons)
