"""MachineHistory: the samples of system.jsonl as readings with their recent past."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.numbers import finite, object_in, objects_in, text_in, texts_in, whole_in
from trainwiz.core.plain import plain_text
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, ProcessReading
from trainwiz.core.telemetry.so_far import SoFar, gpu_key, job_memory, pids_of
from trainwiz.core.telemetry.so_far import limited_by_heat as limited_by_heat

KEPT_SAMPLES = 240
GPU_CHARTS = ("utilization_percent", "temperature_c", "power_w", "memory_used_bytes")
HOST_CHARTS = ("cpu_percent",)

Chart = deque[float | None]


class Charts:
    """The newest values of some numbers of one thing."""

    def __init__(self, names: Iterable[str]) -> None:
        self._values: dict[str, Chart] = {name: deque(maxlen=KEPT_SAMPLES) for name in names}

    def add(self, row: Mapping[str, Any]) -> None:
        for name, values in self._values.items():
            values.append(finite(row.get(name)))

    def of(self, name: str) -> tuple[float | None, ...]:
        """Oldest first; None where it was not known."""
        return tuple(self._values[name])


class MachineHistory:
    """Takes samples in file order; the newest decides the readings."""

    def __init__(self, gpu_names: Mapping[str, str] | None = None) -> None:
        self.gpu_names = dict(gpu_names or {})
        """UUID -> name, for samples that carry no name."""
        self.latest: Mapping[str, Any] = {}
        self.so_far = SoFar()
        self._gpus: dict[str, Charts] = {}
        self._host = Charts(HOST_CHARTS)
        self._job_cpu: Chart = deque(maxlen=KEPT_SAMPLES)

    def peak_device_bytes(self) -> int | None:
        """What the run held at most of the fullest of its cards; None where there is no card.

        Where the driver does not say what each process holds, as in a container, all of a card counts.
        """
        peaks = self.so_far.peak_job_gpu_bytes or self.so_far.peak_gpu_bytes
        return max(peaks.values(), default=None)

    def peak_trainers_bytes(self) -> int | None:
        """RAM of all training processes together at their most; of the whole job where no role is known."""
        so_far = self.so_far
        return max(so_far.peak_trainers_rss_bytes, so_far.peak_trainer_rss_bytes) or so_far.peak_job_rss_bytes or None

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.latest = row
        self.so_far.add(row)
        for index, gpu in enumerate(objects_in(row.get("gpus"))):
            self._gpus.setdefault(gpu_key(gpu, index), Charts(GPU_CHARTS)).add(gpu)
        self._host.add(object_in(row.get("host")))
        loads = [finite(process.get("cpu_percent")) for process in objects_in(row.get("processes"))]
        known = [load for load in loads if load is not None]
        self._job_cpu.append(sum(known) if known else None)

    def gpus(self) -> tuple[GpuReading, ...]:
        pids = pids_of(objects_in(self.latest.get("processes")))
        unavailable = self.unavailable()
        return tuple(
            self._gpu(gpu, index, pids, unavailable) for index, gpu in enumerate(objects_in(self.latest.get("gpus")))
        )

    def _gpu(self, gpu: Mapping[str, Any], position: int, pids: set[int], unavailable: Mapping[str, str]) -> GpuReading:
        key = gpu_key(gpu, position)
        charts = self._gpus[key]
        number = finite(gpu.get("index"))
        index = position if number is None else int(number)
        return GpuReading(
            index=index,
            name=str(gpu.get("name") or self.gpu_names.get(key) or "GPU"),
            uuid=str(gpu["uuid"]) if gpu.get("uuid") else None,
            utilization_percent=finite(gpu.get("utilization_percent")),
            memory_used_bytes=whole_in(gpu.get("memory_used_bytes")),
            memory_total_bytes=whole_in(gpu.get("memory_total_bytes")),
            temperature_c=finite(gpu.get("temperature_c")),
            power_w=finite(gpu.get("power_w")),
            power_limit_w=finite(gpu.get("power_limit_w")),
            throttle_reasons=texts_in(gpu.get("throttle_reasons")),
            job_memory_bytes=job_memory(gpu, pids),
            problem=unavailable.get(f"gpus.{index}"),
            utilization_history=charts.of("utilization_percent"),
            temperature_history=charts.of("temperature_c"),
            power_history=charts.of("power_w"),
            memory_history=charts.of("memory_used_bytes"),
            throttled_since_s=self.so_far.throttled_since_s.get(key),
            idle_since_s=self.so_far.idle_since_s.get(key),
            fan_percent=finite(gpu.get("fan_percent")),
            clock_mhz=finite(gpu.get("clock_mhz")),
            clock_limit_mhz=finite(gpu.get("clock_limit_mhz")),
            mig=text_in(gpu.get("mig")),
            processes=tuple(_gpu_process(process, pids) for process in objects_in(gpu.get("processes"))),
            sample=gpu,
        )

    def host(self) -> HostReading:
        host = object_in(self.latest.get("host"))
        return HostReading(
            ram_used_bytes=whole_in(host.get("ram_used_bytes")),
            ram_total_bytes=whole_in(host.get("ram_total_bytes")),
            cpu_percent=finite(host.get("cpu_percent")),
            swap_used_bytes=whole_in(host.get("swap_used_bytes")),
            swap_total_bytes=whole_in(host.get("swap_total_bytes")),
            disk_free_bytes=whole_in(host.get("disk_free_bytes")),
            disk_total_bytes=whole_in(host.get("disk_total_bytes")),
            disk_lasts_s=self.so_far.disk.lasts_s(),
            disk_span_s=self.so_far.disk.span_s or None,
            ram_lasts_s=self.so_far.ram.lasts_s(),
            ram_span_s=self.so_far.ram.span_s or None,
            cpu_history=self._host.of("cpu_percent"),
            sample=host,
        )

    def processes(self) -> tuple[ProcessReading, ...]:
        return tuple(
            ProcessReading(
                pid=whole_in(process.get("pid")),
                role=text_in(process.get("role")) or "other",
                rss_bytes=whole_in(process.get("rss_bytes")),
                cpu_percent=finite(process.get("cpu_percent")),
                sample=process,
            )
            for process in objects_in(self.latest.get("processes"))
        )

    def job_cpu_history(self) -> tuple[float | None, ...]:
        return tuple(self._job_cpu)

    def unavailable(self) -> dict[str, str]:
        reasons = object_in(self.latest.get("unavailable"))
        return {str(key): str(value) for key, value in reasons.items()}


def _gpu_process(process: Mapping[str, Any], pids: set[int]) -> GpuProcess:
    pid, name = whole_in(process.get("pid")), text_in(process.get("name"))
    return GpuProcess(
        pid=0 if pid is None else pid,
        name=None if name is None else plain_text(name),
        memory_used_bytes=whole_in(process.get("memory_used_bytes")),
        mine=pid in pids,
        kind="graphics" if process.get("kind") == "graphics" else "compute",
    )
