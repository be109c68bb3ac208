"""The recorder: writes system.jsonl, in a thread of its own, so that a hanging driver never delays a stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.gpu_ledger import GpuLedger
from trainwiz.core.supervise.log import log
from trainwiz.core.supervise.sample_file import SampleFile
from trainwiz.core.telemetry.processes import ProcessSampler
from trainwiz.core.telemetry.so_far import SoFar
from trainwiz.core.telemetry.tail import JsonLinesTail

SHARE_OF_A_CORE = 0.005
REMEMBERED_BYTES = 1024**2
"""Of an earlier attempt's samples, so many are read again; `so_far` is written often enough to be among them."""
SO_FAR_EVERY_BYTES = REMEMBERED_BYTES // 4


class Recorder:
    """Appends one line every `every_s` seconds; less often where a sample is so dear that it would cost a core."""

    def __init__(
        self,
        run: RunFolder,
        every_s: float,
        listener: Callable[[dict[str, Any]], None] | None = None,
        *,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        """`listener` is handed each sample, in the recorder's thread. `stands`: whether the folder is still the run's own."""
        self.run = run
        self.every_s = every_s
        self._listener = listener
        self._stands = stands
        self.ledger = GpuLedger()
        self._file = SampleFile(run.system_jsonl)
        self._so_far = SoFar()
        self._so_far_at_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)
        self.problem: str | None = None
        """Why the last line could not be written; None while all is well."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a driver that hangs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _record(self) -> None:
        from trainwiz.core.telemetry.machine_sampler import MachineSampler

        self._report(self._try(self._remember))
        machine = MachineSampler(self.run.path)
        processes = ProcessSampler(os.getpid())
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_wall, started_cpu = time.monotonic(), time.thread_time()
            problem = self._try(lambda: self._write(machine.sample(processes.sample())))
            interval_s = max(self.every_s, (time.thread_time() - started_cpu) / SHARE_OF_A_CORE)
            # Thinning is rare; a pause after it to make up for its cost would be a gap for nothing.
            self._report(problem or self._try(self._thin))
            wait_s = max(0.05, interval_s - (time.monotonic() - started_wall))
        machine.close()

    @staticmethod
    def _try(step: Callable[[], object]) -> str | None:
        """Why it did not work, in a sentence: a sensor must never end a run."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next sample may work
            return f"The machine could not be sampled: {type(error).__name__}: {error}"
        return None

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log(problem)
        self.problem = problem

    def _remember(self) -> None:
        """What earlier attempts saw, so that the peaks are those of the run."""
        for row in JsonLinesTail(self.run.system_jsonl, window_bytes=REMEMBERED_BYTES).read_new():
            self._so_far.add(row)

    def _write(self, row: dict[str, Any]) -> None:
        self._so_far.add(row)
        self.ledger.note(row)
        if self._file.size_bytes >= self._so_far_at_bytes:
            row["so_far"] = self._so_far.to_json()
        if self._listener is not None:
            # Also where the disk is full: those who watch it are the ones to know.
            self._listener(row)
        if not self._stands():
            return
        self._file.append(row)
        if "so_far" in row:
            self._so_far_at_bytes = self._file.size_bytes + SO_FAR_EVERY_BYTES

    def _thin(self) -> None:
        if self._stands() and self._file.thin():
            self._so_far_at_bytes = self._file.size_bytes
