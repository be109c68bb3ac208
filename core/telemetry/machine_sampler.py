"""MachineSampler: one reading of the whole machine, as a line of system.jsonl holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.telemetry.gpu import GpuSampler
from trainwiz.core.telemetry.host import sample_host


class MachineSampler:
    """GPUs and host. Never raises; not for use by two threads at once."""

    def __init__(self, disk_path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """`disk_path`: a folder on the disk that the job fills."""
        self.disk_path = disk_path
        self._clock = clock
        self._gpus = GpuSampler()

    def sample(self, processes: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """{time_s, gpus, host, processes, unavailable}; `processes` are those of the job.

        What could not be read is None (a card or device that is not there has no row), with its reason
        under `unavailable`: "gpus", "gpus.0", "gpus.0.power_w", "host.ram_used_bytes".
        """
        gpus, unavailable = self._gpus.sample()
        host = sample_host(self.disk_path)
        reasons = host.pop("unavailable")
        return {
            "time_s": round(self._clock(), 3),
            "gpus": gpus,
            "host": host,
            "processes": list(processes),
            "unavailable": {**unavailable, **{f"host.{key}": reason for key, reason in reasons.items()}},
        }

    def close(self) -> None:
        """Let go of the driver."""
        self._gpus.close()
