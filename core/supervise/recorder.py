"""The recorder: writes system.jsonl, in a thread of its own, so that a hanging driver never delays a stop."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.log import log
from trainwiz.core.telemetry.processes import ProcessSampler

SHARE_OF_A_CORE = 0.005


class Recorder:
    """Appends one line every `every_s` seconds; less often where a sample is so dear that it would cost a core."""

    def __init__(self, run: RunFolder, every_s: float) -> None:
        self.run = run
        self.every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)
        self.problem: str | None = None
        """Why the last line could not be written; None while all is well."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a driver that hangs."""
        self._stop.set()
        self._thread.join(timeout=2.0)

    def _record(self) -> None:
        from trainwiz.core.telemetry.machine_sampler import MachineSampler

        machine = MachineSampler(self.run.path)
        processes = ProcessSampler(os.getpid())
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_wall, started_cpu = time.monotonic(), time.thread_time()
            try:
                self._append(machine.sample(processes.sample()))
                self.problem = None
            except Exception as error:  # noqa: BLE001 - a sensor must never end a run
                problem = f"The machine could not be sampled: {type(error).__name__}: {error}"
                if problem != self.problem:
                    log(problem)
                self.problem = problem
            interval_s = max(self.every_s, (time.thread_time() - started_cpu) / SHARE_OF_A_CORE)
            wait_s = max(0.05, interval_s - (time.monotonic() - started_wall))

    def _append(self, document: dict[str, Any]) -> None:
        with self.run.system_jsonl.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document, separators=(",", ":")) + "\n")
