"""MachineHistory: the samples of system.jsonl as readings with their recent past."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.telemetry.metrics import finite
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, ProcessReading

KEPT_SAMPLES = 240
HARMLESS_THROTTLING = ("idle", "clock setting", "sync boost")
DISK_SPAN_S = 180.0
"""A shrinking disk is judged over at least this long."""


class MachineHistory:
    """Takes samples in file order; the newest decides the readings."""

    def __init__(self, gpu_names: Mapping[str, str] | None = None) -> None:
        self.gpu_names = dict(gpu_names or {})
        """UUID -> name, for samples that carry no name."""
        self.latest: Mapping[str, Any] = {}
        self.peak_gpu_bytes: dict[str, int] = {}
        """Highest memory use seen for each GPU, by UUID."""
        self.job_gpus: set[str] = set()
        """The cards on which processes of the run were seen to hold memory."""
        self.peak_job_rss_bytes = 0
        self._gpus: dict[str, dict[str, deque[float | None]]] = {}
        self._throttled_since: dict[str, float] = {}
        self._cpu: deque[float | None] = deque(maxlen=KEPT_SAMPLES)
        self._job_cpu: deque[float | None] = deque(maxlen=KEPT_SAMPLES)
        self._disk: deque[tuple[float, float]] = deque(maxlen=KEPT_SAMPLES)

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.latest = row
        time_s = finite(row.get("time_s"))
        pids = {
            int(pid) for process in _objects(row.get("processes")) if (pid := finite(process.get("pid"))) is not None
        }
        for index, gpu in enumerate(_objects(row.get("gpus"))):
            key = _gpu_key(gpu, index)
            self._add_gpu(key, gpu, time_s)
            if _job_memory(gpu, pids):
                self.job_gpus.add(key)
        host = _object(row.get("host"))
        self._cpu.append(finite(host.get("cpu_percent")))
        free = finite(host.get("disk_free_bytes"))
        if free is not None and time_s is not None:
            self._disk.append((time_s, free))
        processes = _objects(row.get("processes"))
        loads = [load for process in processes if (load := finite(process.get("cpu_percent"))) is not None]
        self._job_cpu.append(sum(loads) if loads else None)
        rss = sum(finite(process.get("rss_bytes")) or 0.0 for process in processes)
        self.peak_job_rss_bytes = max(self.peak_job_rss_bytes, int(rss))

    def _add_gpu(self, key: str, gpu: Mapping[str, Any], time_s: float | None) -> None:
        history = self._gpus.setdefault(
            key, {name: deque(maxlen=KEPT_SAMPLES) for name in ("utilization_percent", "temperature_c", "power_w")}
        )
        for name, values in history.items():
            values.append(finite(gpu.get(name)))
        used = finite(gpu.get("memory_used_bytes"))
        if used is not None:
            self.peak_gpu_bytes[key] = max(self.peak_gpu_bytes.get(key, 0), int(used))
        if not real_throttling(_texts(gpu.get("throttle_reasons"))):
            self._throttled_since.pop(key, None)
        elif time_s is not None:
            self._throttled_since.setdefault(key, time_s)

    def gpus(self) -> tuple[GpuReading, ...]:
        pids = {process.pid for process in self.processes() if process.pid is not None}
        unavailable = self.unavailable()
        readings = []
        for index, gpu in enumerate(_objects(self.latest.get("gpus"))):
            key = _gpu_key(gpu, index)
            history = self._gpus.get(key, {})
            number = finite(gpu.get("index"))
            readings.append(
                GpuReading(
                    index=index if number is None else int(number),
                    name=str(gpu.get("name") or self.gpu_names.get(key) or "GPU"),
                    uuid=str(gpu["uuid"]) if gpu.get("uuid") else None,
                    utilization_percent=finite(gpu.get("utilization_percent")),
                    memory_used_bytes=_whole(gpu.get("memory_used_bytes")),
                    memory_total_bytes=_whole(gpu.get("memory_total_bytes")),
                    temperature_c=finite(gpu.get("temperature_c")),
                    power_w=finite(gpu.get("power_w")),
                    power_limit_w=finite(gpu.get("power_limit_w")),
                    throttle_reasons=_texts(gpu.get("throttle_reasons")),
                    job_memory_bytes=_job_memory(gpu, pids),
                    problem=unavailable.get(f"gpus.{index if number is None else int(number)}"),
                    utilization_history=tuple(history.get("utilization_percent", ())),
                    temperature_history=tuple(history.get("temperature_c", ())),
                    power_history=tuple(history.get("power_w", ())),
                    throttled_since_s=self._throttled_since.get(key),
                    sample=gpu,
                )
            )
        return tuple(readings)

    def host(self) -> HostReading:
        host = _object(self.latest.get("host"))
        return HostReading(
            ram_used_bytes=_whole(host.get("ram_used_bytes")),
            ram_total_bytes=_whole(host.get("ram_total_bytes")),
            cpu_percent=finite(host.get("cpu_percent")),
            disk_free_bytes=_whole(host.get("disk_free_bytes")),
            disk_lasts_s=self._disk_lasts_s(),
            cpu_history=tuple(self._cpu),
            sample=host,
        )

    def processes(self) -> tuple[ProcessReading, ...]:
        return tuple(
            ProcessReading(
                pid=_whole(process.get("pid")),
                role=_text(process.get("role")) or "other",
                rss_bytes=_whole(process.get("rss_bytes")),
                cpu_percent=finite(process.get("cpu_percent")),
                sample=process,
            )
            for process in _objects(self.latest.get("processes"))
        )

    def job_cpu_history(self) -> tuple[float | None, ...]:
        return tuple(self._job_cpu)

    def unavailable(self) -> dict[str, str]:
        reasons = self.latest.get("unavailable")
        return {str(key): str(value) for key, value in reasons.items()} if isinstance(reasons, dict) else {}

    def _disk_lasts_s(self) -> float | None:
        if len(self._disk) < 2:
            return None
        (first_time, first_free), (last_time, last_free) = self._disk[0], self._disk[-1]
        span, lost = last_time - first_time, first_free - last_free
        return last_free / lost * span if span >= DISK_SPAN_S and lost > 0 else None


def real_throttling(reasons: Iterable[str]) -> tuple[str, ...]:
    """The reasons that slow a busy card; an idle card and clocks that the user set are none."""
    return tuple(reason for reason in reasons if not any(word in reason.lower() for word in HARMLESS_THROTTLING))


def limited_by_heat(reasons: Iterable[str]) -> bool:
    """Whether heat is among the reasons, in the words of core/telemetry/gpu.py."""
    return any("heat" in reason.lower() for reason in reasons)


def _gpu_key(gpu: Mapping[str, Any], index: int) -> str:
    return str(gpu.get("uuid") or f"index {gpu.get('index', index)}")


def _job_memory(gpu: Mapping[str, Any], pids: set[int]) -> int | None:
    sizes = []
    for process in _objects(gpu.get("processes")):
        size = finite(process.get("memory_used_bytes"))
        if size is not None and _whole(process.get("pid")) in pids:
            sizes.append(int(size))
    return sum(sizes) if sizes else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    converted = finite(value)
    return None if converted is None else int(converted)
