"""A run folder that is written row by row, with a clock turned by hand, for watchers that look at it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwiz.core.run.attempts import Advice, Phase, write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.watch import Observation, Run, watched_advice
from trainwiz.core.telemetry.run_setup import RunSetup

GIB = 1024**3
LOOK_S = 5.0
RUNNING = Run("running", RunSetup(workers=2, cpu_cores=32, max_steps=100_000), on_cpu=False)


class SeenRun:
    """`step` and `rest` move the clock, write what a training and a recorder would, and look every LOOK_S."""

    def __init__(self, folder: Path, run: Run = RUNNING) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = RunFolder(folder)
        self.now_s = 1_700_000_000.0
        self.run = run
        self.steps, self.look_s = 0, LOOK_S
        self.observation = Observation(self.folder, self.now_s, clock=lambda: self.now_s)
        self.found: list[Advice] = []
        self.ever: set[str] = set()
        sizes = {"ram_used_bytes": 10 * GIB, "ram_total_bytes": 64 * GIB, "disk_free_bytes": 900 * GIB}
        self.host: dict[str, Any] = sizes
        self.gpus: list[dict[str, Any]] = []
        self.unavailable: dict[str, str] = {}
        self.sampled = True

    def phase(self, phase: Phase) -> None:
        write_phase(self.folder, phase, self.steps, since_s=self.now_s)

    def steps_of(self, step_s: float, count: int, **values: Any) -> None:
        for _ in range(count):
            self.rest(step_s)
            self.steps += 1
            row = {"time_s": self.now_s, "step": self.steps, "loss": 2.5, "step_s": step_s, "data_wait_s": step_s / 100}
            with self.folder.metrics_jsonl.open("a") as file:
                file.write(json.dumps({**row, **values}) + "\n")

    def rest(self, seconds: float) -> None:
        """Time passes; samples are taken and watchers look."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + self.look_s)
            self.look()

    def look(self) -> list[Advice]:
        if self.sampled:
            sample = {"time_s": self.now_s, "host": dict(self.host), "gpus": self.gpus, "processes": []}
            self.observation.take_sample({**sample, "unavailable": self.unavailable})
        self.observation.look()
        self.found = watched_advice(self.observation, self.run)
        self.ever |= self.codes
        return self.found

    @property
    def codes(self) -> set[str]:
        return {item.code for item in self.found}


def text_of(found: Iterable[Advice], code: str) -> str:
    return next(item.text for item in found if item.code == code)
