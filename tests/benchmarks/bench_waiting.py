"""How the threads of a training on the CPU wait: watched, as trainwiz has it, against GNU's own way and against sleep.

A small model, whose operations are short: alone, beside a busy process, and two trainings at once, each with as many threads as
there are cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median

from trainwiz.core.run.openmp import AWAKE, POLICY, SPINS

from tests.benchmarks.measure import Result

REPEATS, SECONDS = 3, 6
WAYS: Mapping[str, Mapping[str, str]] = {
    "watched": {POLICY: "PASSIVE", SPINS: AWAKE},
    "GNU's own": {},
    "asleep": {POLICY: "PASSIVE", SPINS: "0"},
}
BUSY = [sys.executable, "-c", "while True: pass"]


def run() -> list[Result]:
    alone = _measure("alone", trainings=1, busy=0)
    beside = _measure("beside one busy process", trainings=1, busy=1)
    two = _measure("two trainings", trainings=2, busy=0)
    return [
        _result("alone", alone, "GNU's own", "asleep"),
        _result("beside one busy process", beside, "asleep", "GNU's own"),
        _result("two trainings", two, "asleep", "GNU's own"),
    ]


def _result(where: str, found: Mapping[str, float], best: str, other: str) -> Result:
    watched = found["watched"]
    detail = f"{watched:.0f} ms; {best} {found[best]:.0f}, {other} {found[other]:.0f}"
    return Result(f"step of a small model, {where}: watched / {best}", watched / found[best], 1.25, detail)


def _measure(where: str, trainings: int, busy: int) -> dict[str, float]:
    """Way -> the median of a step in ms, over all repeats and trainings."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(REPEATS):
        for way, variables in WAYS.items():
            found[way] += _steps_ms(variables, trainings, busy)
    for way, each in found.items():
        print(f"  {where}, {way}: {' '.join(f'{one:.0f}' for one in each)} ms", flush=True)
    return {way: median(each) for way, each in found.items()}


def _steps_ms(variables: Mapping[str, str], trainings: int, busy: int) -> list[float]:
    cores = len(os.sched_getaffinity(0))
    clean = {name: value for name, value in os.environ.items() if name not in (POLICY, SPINS)}
    environment = {**clean, **variables, "OMP_NUM_THREADS": str(cores), "CUDA_VISIBLE_DEVICES": ""}
    others = [subprocess.Popen(BUSY) for _ in range(busy)]
    try:
        command = [sys.executable, "-m", "tests.benchmarks.waiting_steps", str(SECONDS)]
        measured = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for _ in range(trainings)
        ]
        return [float(process.communicate()[0].split()[-1]) for process in measured]
    finally:
        for other in others:
            other.kill()
            other.wait()
