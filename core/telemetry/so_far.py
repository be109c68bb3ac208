"""SoFar: what all samples of a run together say, in few words, so that nobody has to read all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.numbers import finite, object_in, objects_in, texts_in, whole_in
from trainwiz.core.telemetry.trend import Trend

HARMLESS_THROTTLING = ("idle", "clock setting", "sync boost")
IDLE_PERCENT = 5.0
"""Below this a card does nothing."""
GAP_S = 120.0
"""Nothing is said to have lasted over a longer time without samples."""


class SoFar:
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
        time_s = finite(row.get("time_s"))
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
        sizes = [(process.get("role"), finite(process.get("rss_bytes")) or 0.0) for process in processes]
        self.peak_job_rss_bytes = max(self.peak_job_rss_bytes, int(sum(size for _, size in sizes)))
        trainers = [size for role, size in sizes if role == "trainer"]
        self.peak_trainer_rss_bytes = max(self.peak_trainer_rss_bytes, int(max(trainers, default=0)))
        self.peak_trainers_rss_bytes = max(self.peak_trainers_rss_bytes, int(sum(trainers)))

    def _add_host(self, host: Mapping[str, Any], time_s: float) -> None:
        free = finite(host.get("disk_free_bytes"))
        if free is not None:
            self.disk.add(time_s, free)
        used, total = finite(host.get("ram_used_bytes")), finite(host.get("ram_total_bytes"))
        if used is not None and total is not None:
            self.ram.add(time_s, total - used)

    def _add_gpu(self, key: str, gpu: Mapping[str, Any], pids: set[int], time_s: float | None) -> None:
        used = finite(gpu.get("memory_used_bytes"))
        if used is not None:
            self.peak_gpu_bytes[key] = max(self.peak_gpu_bytes.get(key, 0), int(used))
        own = job_memory(gpu, pids)
        if own:
            self.peak_job_gpu_bytes[key] = max(self.peak_job_gpu_bytes.get(key, 0), own)
        busy = finite(gpu.get("utilization_percent"))
        _since(self.throttled_since_s, key, time_s, bool(real_throttling(texts_in(gpu.get("throttle_reasons")))))
        _since(self.idle_since_s, key, time_s, busy is not None and busy < IDLE_PERCENT)

    def to_json(self) -> dict[str, Any]:
        """The object that `add` takes up again from a row's `so_far`."""
        return {
            "peak_gpu_bytes": self.peak_gpu_bytes,
            "peak_job_gpu_bytes": self.peak_job_gpu_bytes,
            "peak_job_rss_bytes": self.peak_job_rss_bytes,
            "peak_trainer_rss_bytes": self.peak_trainer_rss_bytes,
            "peak_trainers_rss_bytes": self.peak_trainers_rss_bytes,
            "throttled_since_s": self.throttled_since_s,
            "idle_since_s": self.idle_since_s,
            "disk_free": _pairs(self.disk),
            "ram_free": _pairs(self.ram),
        }

    def _take(self, document: Mapping[str, Any]) -> None:
        if not document:
            return
        for peaks, name in (
            (self.peak_gpu_bytes, "peak_gpu_bytes"),
            (self.peak_job_gpu_bytes, "peak_job_gpu_bytes"),
        ):
            for key, value in object_in(document.get(name)).items():
                peaks[str(key)] = max(peaks.get(str(key), 0), whole_in(value) or 0)
        for name in ("peak_job_rss_bytes", "peak_trainer_rss_bytes", "peak_trainers_rss_bytes"):
            setattr(self, name, max(getattr(self, name), whole_in(document.get(name)) or 0))
        for since, name in ((self.throttled_since_s, "throttled_since_s"), (self.idle_since_s, "idle_since_s")):
            for key, value in object_in(document.get(name)).items():
                began_s = finite(value)
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
            time_s, amount = map(finite, pair)
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
        if (size := finite(process.get("memory_used_bytes"))) is not None and whole_in(process.get("pid")) in pids
    ]
    return sum(sizes) if sizes else None


def real_throttling(reasons: Iterable[str]) -> tuple[str, ...]:
    """The reasons that slow a busy card; an idle card and clocks that the user set are none."""
    return tuple(reason for reason in reasons if not any(word in reason.lower() for word in HARMLESS_THROTTLING))


def limited_by_heat(reasons: Iterable[str]) -> bool:
    """Whether heat is among the reasons, in the words of core/telemetry/gpu_sensors.py."""
    return any("heat" in reason.lower() for reason in reasons)
