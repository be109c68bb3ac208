"""Samples of a machine as they come, their history, the highest values so far, and how long what shrinks will last."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.lines import Seldom
from trainwiz.core.telemetry.processes import ProcessSampler
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, ProcessReading
from trainwiz.core.telemetry.trainer_files import checkpoints_in
from trainwiz.core.text import numbers_finite, object_in, objects_in, plain_text, text_in, texts_in, whole_in

# One reading of the computer around the GPUs: the `host` of a line of system.jsonl.


def sample_host(disk_path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """RAM, swap, CPU and disk in bytes and percent, and the reasons for what is None since it cannot be read.

    RAM respects the cgroup's limit, as in the plan. `cpu_percent` is of all cores of the machine (0..100)
    since the last call in this process. The disk is the one that `disk_path` lies on.
    """
    import psutil

    line: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    reads: dict[tuple[str, ...], Callable[[], tuple[Any, ...]]] = {
        ("ram_used_bytes", "ram_total_bytes"): _ram,
        ("swap_used_bytes", "swap_total_bytes"): lambda: psutil.swap_memory()[1::-1],
        ("cpu_percent",): lambda: (float(psutil.cpu_percent(interval=None)),),
        ("disk_free_bytes", "disk_total_bytes"): lambda: _disk(disk_path),
    }
    for names, read in reads.items():
        try:
            line |= dict(zip(names, read(), strict=True))
        except (OSError, psutil.Error, RuntimeError) as error:
            line |= dict.fromkeys(names)
            unavailable |= dict.fromkeys(names, os_reason(error) if isinstance(error, OSError) else str(error))
    return line, unavailable


def _ram() -> tuple[int, int]:
    from trainwiz.core.hardware.host import read_memory

    memory = read_memory()
    return memory.total_bytes - memory.available_bytes, memory.total_bytes


def _disk(path: Path) -> tuple[int, int]:
    from trainwiz.core.hardware.host import nearest_existing

    usage = shutil.disk_usage(nearest_existing(path))
    return usage.free, usage.total


class MachineSampler:
    """GPUs, host and the processes of a job. Never raises; not for use by two threads at once."""

    def __init__(self, disk_path: Path, root_pid: int, *, clock: Callable[[], float] = time.time) -> None:
        """`disk_path`: a folder on the disk that the job fills. `root_pid`: the top of its processes."""
        from trainwiz.core.telemetry.gpu import GpuSampler

        self.disk_path = disk_path
        self._clock = clock
        self._gpus = GpuSampler()
        self._processes = ProcessSampler(root_pid)

    def sample(self) -> dict[str, Any]:
        """{time_s, gpus, host, processes, unavailable}.

        What could not be read is None (a card or device that is not there has no row), with its reason
        under `unavailable`: "gpus", "gpus.0", "gpus.0.power_w", "host.ram_used_bytes".
        """
        gpus, unavailable = self._gpus.sample()
        host, reasons = sample_host(self.disk_path)
        return {
            "time_s": round(self._clock(), 3),
            "gpus": gpus,
            "host": host,
            "processes": self._processes.sample(),
            "unavailable": {**unavailable, **{f"host.{key}": reason for key, reason in reasons.items()}},
        }

    def close(self) -> None:
        self._gpus.close()


# Peaks: what all samples of a run together say, in few words, so that nobody has to read all of them.

IDLE_PERCENT = 5.0
"""Below this a card does nothing."""
GAP_S = 120.0
"""Nothing is said to have lasted over a longer time without samples."""


@dataclass
class Peaks:
    """The highest values of all samples, which are taken in order of time. The recorder writes them beside some of its
    samples (key `so_far`), so that a viewer that enters the file near its end, and a file whose older samples were
    thinned out, know the peaks of the whole run.
    """

    peak_gpu_bytes: dict[str, int] = field(default_factory=dict)
    """Highest memory use seen of each GPU, by its key."""
    peak_job_gpu_bytes: dict[str, int] = field(default_factory=dict)
    """What the processes of the run held at most of each card on which they were seen to hold memory."""
    peak_job_rss_bytes: int = 0
    peak_trainer_rss_bytes: int = 0
    """Of the fullest training process."""
    peak_trainers_rss_bytes: int = 0
    """Of all training processes together."""

    def add(self, row: Mapping[str, Any]) -> None:
        """A sample, or one that has the peaks of those before it in its `so_far`."""
        before, processes = object_in(row.get("so_far")), objects_in(row.get("processes"))
        pids = pids_of(processes)
        sizes = [(process.get("role"), whole_in(process.get("rss_bytes")) or 0) for process in processes]
        trainers = [size for role, size in sizes if role == "trainer"]
        for gpu in objects_in(row.get("gpus")):
            _raise(self.peak_gpu_bytes, {gpu_key(gpu): gpu.get("memory_used_bytes")})
            _raise(self.peak_job_gpu_bytes, {gpu_key(gpu): job_memory(gpu, pids)})
        _raise(self.peak_gpu_bytes, before.get("peak_gpu_bytes"))
        _raise(self.peak_job_gpu_bytes, before.get("peak_job_gpu_bytes"))
        whole, fullest, together = sum(size for _, size in sizes), max(trainers, default=0), sum(trainers)
        self.peak_job_rss_bytes = _highest(self.peak_job_rss_bytes, before.get("peak_job_rss_bytes"), whole)
        self.peak_trainer_rss_bytes = _highest(
            self.peak_trainer_rss_bytes, before.get("peak_trainer_rss_bytes"), fullest
        )
        self.peak_trainers_rss_bytes = _highest(
            self.peak_trainers_rss_bytes, before.get("peak_trainers_rss_bytes"), together
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `add` takes up again from a row's `so_far`."""
        return asdict(self)


def _highest(*sizes: Any) -> int:
    """Of sizes as a file may hold them."""
    return max(whole_in(size) or 0 for size in sizes)


def _raise(peaks: dict[str, int], seen: Any) -> None:
    for key, size in object_in(seen).items():
        if whole_in(size):
            peaks[key] = _highest(peaks.get(key), size)


def gpu_key(gpu: Mapping[str, Any]) -> str:
    """The UUID, or the number of a card whose UUID is not known."""
    return str(gpu.get("uuid") or f"index {gpu.get('index')}")


def pids_of(processes: Iterable[Mapping[str, Any]]) -> set[int]:
    return {pid for process in processes if (pid := whole_in(process.get("pid"))) is not None}


def job_memory(gpu: Mapping[str, Any], pids: set[int]) -> int | None:
    """Bytes that the processes `pids` hold of the card; None where none of them is known to hold any."""
    own = [process for process in objects_in(gpu.get("processes")) if whole_in(process.get("pid")) in pids]
    sizes = [size for process in own if (size := whole_in(process.get("memory_used_bytes"))) is not None]
    return sum(sizes) if sizes else None


def limited_by_heat(reasons: Iterable[str]) -> bool:
    """Whether heat is among the reasons, in the words of core/telemetry/gpu.py."""
    return any("heat" in reason.lower() for reason in reasons)


# Trend: how long what shrinks will last, by a straight line through the samples of the last minutes.

TREND_S = 300.0
STEADY = 0.95
"""So much of what happened (R squared) the line must tell: one large file, or memory that fills at a start, is no pace."""


class Trend:
    """What is left of RAM or disk (bytes), over the last TREND_S."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, time_s: float, left: float) -> None:
        points = self._points
        if points and not 0 <= time_s - points[-1][0] <= GAP_S:
            points.clear()
        points.append((time_s, left))
        while len(points) > 1 and time_s - points[1][0] >= TREND_S:
            points.popleft()

    def lasts_s(self) -> float | None:
        """Seconds until nothing is left; None where it was watched for less than TREND_S or does not shrink steadily."""
        if not self._points or self._points[-1][0] - self._points[0][0] < TREND_S:
            return None
        times, left = zip(*self._points, strict=True)
        try:
            steady = statistics.correlation(times, left) <= -math.sqrt(STEADY)
        except (ValueError, OverflowError):
            # Always the same, or beyond any number of bytes.
            return None
        return -left[-1] / statistics.linear_regression(times, left).slope if steady else None


KEPT_SAMPLES = 240
GPU_CHARTS = ("utilization_percent", "temperature_c", "power_w")
GPU_NUMBERS = (*GPU_CHARTS, "power_limit_w", "fan_percent", "clock_mhz", "clock_limit_mhz")

Chart = deque[float | None]
"""The newest values of one number, oldest first; None where it was not known."""


class MachineHistory:
    """Takes samples in file order; the newest decides the readings."""

    def __init__(self) -> None:
        self.latest: Mapping[str, Any] = {}
        self.so_far = Peaks()
        self._disk, self._ram = Trend(), Trend()
        self._idle_since_s: dict[str, float] = {}
        self._time_s: float | None = None
        self._charts: defaultdict[tuple[str, str], Chart] = defaultdict(lambda: deque(maxlen=KEPT_SAMPLES))
        """By (key of a card, "host" or "job", name of the number)."""

    def peak_memory_bytes(self, *, on_cpu: bool) -> int | None:
        """What the run held at most of the fullest of its cards; without one, the RAM of all training processes.

        Where the driver does not say what each process holds, as in a container, all of a card counts;
        where no role is known, the RAM of the whole job.
        """
        so_far = self.so_far
        on_card = None if on_cpu else max((so_far.peak_job_gpu_bytes or so_far.peak_gpu_bytes).values(), default=None)
        if on_card is not None:
            return on_card
        return so_far.peak_trainers_rss_bytes or so_far.peak_job_rss_bytes or None

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.latest = row
        self.so_far.add(row)
        time_s = numbers_finite(row.get("time_s"))
        if time_s is not None:
            if self._time_s is not None and not 0 <= time_s - self._time_s <= GAP_S:
                self._idle_since_s.clear()
            self._time_s = time_s
        for gpu in objects_in(row.get("gpus")):
            key, busy = gpu_key(gpu), numbers_finite(gpu.get("utilization_percent"))
            if busy is None or busy >= IDLE_PERCENT:
                self._idle_since_s.pop(key, None)
            elif time_s is not None:
                self._idle_since_s.setdefault(key, time_s)
            for name in GPU_CHARTS:
                self._charts[key, name].append(numbers_finite(gpu.get(name)))
        loads = (numbers_finite(process.get("cpu_percent")) for process in objects_in(row.get("processes")))
        known = [load for load in loads if load is not None]
        self._charts["job", "cpu"].append(sum(known) if known else None)
        host = object_in(row.get("host"))
        self._charts["host", "cpu"].append(numbers_finite(host.get("cpu_percent")))
        used, total = numbers_finite(host.get("ram_used_bytes")), numbers_finite(host.get("ram_total_bytes"))
        if time_s is not None and used is not None and total is not None:
            self._ram.add(time_s, total - used)
        if time_s is not None and (free := numbers_finite(host.get("disk_free_bytes"))) is not None:
            self._disk.add(time_s, free)

    def _chart(self, of: str, name: str) -> tuple[float | None, ...]:
        return tuple(self._charts[of, name])

    def gpus(self) -> tuple[GpuReading, ...]:
        pids = pids_of(objects_in(self.latest.get("processes")))
        return tuple(self._gpu(gpu, pids) for gpu in objects_in(self.latest.get("gpus")))

    def _gpu(self, gpu: Mapping[str, Any], pids: set[int]) -> GpuReading:
        key, index = gpu_key(gpu), whole_in(gpu.get("index")) or 0
        values: dict[str, Any] = {name: numbers_finite(gpu.get(name)) for name in GPU_NUMBERS}
        return GpuReading(
            index=index,
            name=text_in(gpu.get("name")) or "GPU",
            uuid=text_in(gpu.get("uuid")),
            memory_used_bytes=whole_in(gpu.get("memory_used_bytes")),
            memory_total_bytes=whole_in(gpu.get("memory_total_bytes")),
            throttle_reasons=texts_in(gpu.get("throttle_reasons")),
            job_memory_bytes=job_memory(gpu, pids),
            problem=self.unavailable().get(f"gpus.{index}"),
            utilization_history=self._chart(key, "utilization_percent"),
            temperature_history=self._chart(key, "temperature_c"),
            power_history=self._chart(key, "power_w"),
            idle_since_s=self._idle_since_s.get(key),
            mig=text_in(gpu.get("mig")),
            processes=tuple(_gpu_process(process, pids) for process in objects_in(gpu.get("processes"))),
            sample=gpu,
            **values,
        )

    def host(self) -> HostReading:
        host = object_in(self.latest.get("host"))
        return HostReading(
            ram_used_bytes=whole_in(host.get("ram_used_bytes")),
            ram_total_bytes=whole_in(host.get("ram_total_bytes")),
            disk_free_bytes=whole_in(host.get("disk_free_bytes")),
            cpu_percent=numbers_finite(host.get("cpu_percent")),
            disk_lasts_s=self._disk.lasts_s(),
            ram_lasts_s=self._ram.lasts_s(),
            cpu_history=self._chart("host", "cpu"),
            sample=host,
        )

    def readings(self) -> dict[str, Any]:
        """What a snapshot has of the machine."""
        processes = tuple(
            ProcessReading(
                pid=whole_in(process.get("pid")),
                role=text_in(process.get("role")) or "other",
                rss_bytes=whole_in(process.get("rss_bytes")),
                cpu_percent=numbers_finite(process.get("cpu_percent")),
                sample=process,
            )
            for process in objects_in(self.latest.get("processes"))
        )
        cpu = self._chart("job", "cpu")
        return {"gpus": self.gpus(), "host": self.host(), "processes": processes, "job_cpu_history": cpu}

    def unavailable(self) -> dict[str, str]:
        reasons = object_in(self.latest.get("unavailable"))
        return {key: str(value) for key, value in reasons.items()}


def _gpu_process(process: Mapping[str, Any], pids: set[int]) -> GpuProcess:
    pid, name = whole_in(process.get("pid")) or 0, text_in(process.get("name"))
    return GpuProcess(
        pid=pid,
        name=None if name is None else plain_text(name),
        memory_used_bytes=whole_in(process.get("memory_used_bytes")),
        mine=pid in pids,
        kind="graphics" if process.get("kind") == "graphics" else "compute",
    )


# What a run still writes to its disk, and how large its checkpoints are.

LOOK_EVERY_S = 10.0
SETTLED_AFTER_S = 60.0
"""A checkpoint that was written to within this time may not be whole yet."""


@dataclass(frozen=True, slots=True)
class Saves:
    """What a run still saves."""

    needed_bytes: int
    """Most of the disk that it will take beyond what it has now, the model at its end included."""
    grows: bool
    """Whether the next save leaves more on the disk than was there: until as many lie there as are kept."""


def saves_of(engine: Mapping[str, Any], sizes: CheckpointSize, step: float | None) -> Saves | None:
    """What a run at `step` still saves, by the engine record of its state; None where one of the facts is not known."""
    size, kept = sizes.usual_bytes(), whole_in(engine.get("checkpoints_kept"))
    every, last = whole_in(engine.get("save_every_steps")), whole_in(engine.get("max_steps"))
    if size is None or step is None or not every or last is None:
        return None
    # The last step saves in any case.
    to_come = math.ceil(max(0, last - step // every * every) / every)
    room = to_come if kept is None else kept - sizes.present
    # A new checkpoint is whole before an old one goes; at the end the model takes the place of the one too many.
    at_once, stay = (max(0, min(to_come, count)) for count in (room + 1, room))
    model_bytes = (whole_in(engine.get("parameters")) or 0) * (4 if engine.get("weights_dtype") == "float32" else 2)
    return Saves(max(at_once * size, stay * size + model_bytes), grows=stay > 0)


class CheckpointSize:
    """Of one output folder. Looks into it rarely."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._look = Seldom(LOOK_EVERY_S)
        self._measured: Path | None = None
        """The newest checkpoint, once it is whole."""
        self._bytes: int | None = None
        self.present = 0
        """Checkpoints that lie there, as of the last look."""

    def usual_bytes(self) -> int | None:
        """Bytes of a checkpoint of this run, also while the next is being written; None before there is one."""
        self._look.do(self._measure)
        return self._bytes

    def _measure(self) -> None:
        paths = [path for _, path in checkpoints_in(self.folder)]
        self.present = len(paths)
        for path in paths[:2]:
            if path == self._measured:
                return
            size, changed_s = _size_of(path)
            # The one before was whole when the newest was begun.
            if path != paths[0] or self._clock() - changed_s > SETTLED_AFTER_S:
                self._measured, self._bytes = path, size
                return


def _size_of(folder: Path) -> tuple[int, float]:
    """(bytes of all files in it, when the last of them was changed); files that vanish meanwhile are left out."""
    size, changed_s = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - thousands of shards, each asked once
                size += status.st_size
                changed_s = max(changed_s, status.st_mtime)
    return size, changed_s
