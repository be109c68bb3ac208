"""LiveMachine: samples of this machine and of one job on it, for jobs that no keeper records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwiz.core.telemetry.processes import ProcessSampler

if TYPE_CHECKING:
    from trainwiz.core.telemetry.machine_sampler import MachineSampler

EVERY_S = 1.0
"""A sample is taken at most this often; in between nothing is read."""


class LiveMachine:
    """Takes samples as a keeper writes them into system.jsonl. Never raises; not for two threads at once."""

    def __init__(
        self,
        root_pids: Iterable[int],
        disk_path: Path,
        *,
        clock: Callable[[], float] = time.time,
        every_s: float = EVERY_S,
    ) -> None:
        """`root_pids`: the tops of the job's process trees. `disk_path`: a folder on the disk that it fills."""
        self.disk_path = disk_path
        self._clock = clock
        self._every_s = every_s
        self._samplers = [ProcessSampler(pid) for pid in root_pids]
        self._next_s = 0.0
        self._machine: MachineSampler | None = None

    def sample(self) -> dict[str, Any] | None:
        """A row of system.jsonl; None where the last one is younger than `every_s`."""
        now = time.monotonic()
        if now < self._next_s:
            return None
        self._next_s = now + self._every_s
        if self._machine is None:
            # NVML and psutil are loaded by the first sample, which comes after the first frame.
            from trainwiz.core.telemetry.machine_sampler import MachineSampler

            self._machine = MachineSampler(self.disk_path, clock=self._clock)
        return self._machine.sample([row for sampler in self._samplers for row in sampler.sample()])

    def hurry(self) -> None:
        """Let the next sample come at once."""
        self._next_s = 0.0

    def close(self) -> None:
        """Let go of the driver."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None
