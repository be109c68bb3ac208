"""The highest values so far, and the size of the next checkpoint."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.run.checkpoints import CHECKPOINT_NAME
from trainwiz.core.telemetry.advice_training import Trend
from trainwiz.core.telemetry.run_plan import RunSetup
from trainwiz.core.text import numbers_finite, object_in, objects_in, texts_in, whole_in

# Peaks: what all samples of a run together say, in few words, so that nobody has to read all of them.

HARMLESS_THROTTLING = ("idle", "clock setting", "sync boost")
IDLE_PERCENT = 5.0
"""Below this a card does nothing."""
GAP_S = 120.0
"""Nothing is said to have lasted over a longer time without samples."""


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


# Checkpoint room: whether the disk lasts for the checkpoints that a run still writes, with those that it deletes counted.


@dataclass(frozen=True, slots=True)
class Saves:
    """What a run has saved and will save."""

    checkpoint_bytes: int
    """Of one checkpoint."""
    present: int
    """Complete ones that lie there now."""
    kept: int | None
    """Most that lie there between two saves; None where all stay."""
    every_steps: int
    step: int
    max_steps: int
    model_bytes: int = 0
    """Written once more at the end."""

    @property
    def to_come(self) -> int:
        """Checkpoints that are still written; the last step saves in any case."""
        done = self.step // self.every_steps * self.every_steps
        return math.ceil(max(0, self.max_steps - done) / self.every_steps)

    @property
    def needed_bytes(self) -> int:
        """Most of the disk that the run will take beyond what it has now. A new checkpoint is whole before an old one goes."""
        checkpoints = self.to_come
        if self.kept is not None:
            checkpoints = min(checkpoints, max(0, self.kept + 1 - self.present))
        # At the end the checkpoint that was too many is gone, and the model takes its place.
        at_end = min(self.to_come, max(0, self.kept - self.present)) if self.kept is not None else self.to_come
        return max(checkpoints * self.checkpoint_bytes, at_end * self.checkpoint_bytes + self.model_bytes)

    def fails_at_step(self, free_bytes: int) -> int | None:
        """The step whose save (of the end: whose model) no longer fits into `free_bytes`; None where all fit."""
        if self.needed_bytes <= free_bytes:
            return None
        fitting = free_bytes // max(1, self.checkpoint_bytes)
        next_save = (self.step // self.every_steps + 1) * self.every_steps
        return min(self.max_steps, next_save + fitting * self.every_steps)

    @property
    def grows(self) -> bool:
        """Whether the next save leaves more on the disk than was there: until as many lie there as are kept."""
        return self.to_come > 0 and (self.kept is None or self.present < self.kept)


# CheckpointSize: how much disk the next checkpoint will take, from those that are there.

LOOK_EVERY_S = 10.0
SETTLED_AFTER_S = 60.0
"""A checkpoint that was written to within this time may not be whole yet."""


class CheckpointSize:
    """Of one output folder. Looks into it rarely, and measures a checkpoint once."""

    def __init__(
        self, folder: Path, *, clock: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._ticks = ticks
        self._next_look = 0.0
        self._measured: tuple[str, int] | None = None
        self._settled = False
        self._usual: tuple[str, int] | None = None
        self.present = 0
        """Checkpoints that lie there, as of the last look."""

    def next_bytes(self) -> int | None:
        """Bytes of the newest checkpoint; None where there is none, or one is being written now."""
        self._look_now_and_then()
        return self._measured[1] if self._measured is not None and self._settled else None

    def usual_bytes(self) -> int | None:
        """Bytes of a checkpoint of this run, also while the next is being written; None before there is one."""
        self._look_now_and_then()
        return self._usual[1] if self._usual is not None else None

    def _look_now_and_then(self) -> None:
        now = self._ticks()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._look()

    def _look(self) -> None:
        checkpoints = _checkpoints(self.folder)
        self.present = len(checkpoints)
        newest = Path(max(checkpoints)[1]) if checkpoints else None
        if newest is None:
            self._measured = None
            return
        if self._settled and self._measured is not None and self._measured[0] == newest.name:
            return
        size, changed_s = _size_of(newest)
        self._measured = newest.name, size
        self._settled = self._clock() - changed_s > SETTLED_AFTER_S
        if self._settled:
            self._usual = self._measured
        elif len(checkpoints) > 1:
            before = Path(sorted(checkpoints)[-2][1])
            if self._usual is None or self._usual[0] != before.name:
                # The one before was whole when the newest was begun.
                self._usual = before.name, _size_of(before)[0]


def saves_of(setup: RunSetup, sizes: CheckpointSize, step: float | None) -> Saves | None:
    """What a run at `step` still saves; None where one of the facts is not known."""
    size = sizes.usual_bytes()
    if size is None or step is None or setup.save_every_steps is None or setup.max_steps is None:
        return None
    return Saves(
        checkpoint_bytes=size,
        present=sizes.present,
        kept=setup.checkpoints_kept,
        every_steps=setup.save_every_steps,
        step=int(step),
        max_steps=setup.max_steps,
        model_bytes=setup.model_bytes,
    )


def _checkpoints(folder: Path) -> list[tuple[int, str]]:
    """(step, path) of each `checkpoint-N`."""
    try:
        with os.scandir(folder) as entries:
            paths = {entry.name: entry.path for entry in entries}
    except OSError:
        return []
    return [(int(found.group(1)), path) for name, path in paths.items() if (found := CHECKPOINT_NAME.fullmatch(name))]


def _size_of(folder: Path) -> tuple[int, float]:
    """(bytes of all files in it, when the last of them was changed); files that vanish meanwhile are left out."""
    size, changed_s = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - thousands of shards, each asked once
            except OSError:
                continue
            size += status.st_size
            changed_s = max(changed_s, status.st_mtime)
    return size, changed_s
