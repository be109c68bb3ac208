"""What it costs to watch a machine: the recorder beside a run, its file after a day, and nvitop's reading of the same cards.

nvitop is compared where this Python, or the one that NVITOP_PYTHON names, has it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trainwiz.core.supervise.recorder import MOST_BYTES, SampleFile

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, build_library
from tools.benchmarks.measure import Result

CARDS = 8
WATCHED_S = 20
SHARE_LIMIT_PERCENT = 0.5
DAY_S = 86_400
MIB = 1024**2

RECORDER = """
import sys, time
from pathlib import Path
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.recorder import Recorder
recorder = Recorder(RunFolder(Path(sys.argv[1])), 1.0)
recorder.start()
time.sleep(5)
began, before = time.monotonic(), time.process_time()
time.sleep(float(sys.argv[2]))
print((time.process_time() - before) / (time.monotonic() - began))
"""
"""The share of a core that a process takes which does nothing but record; the imports come before."""

OURS = """
from trainwiz.core.telemetry.gpu import GpuSampler
sampler = GpuSampler()
def look():
    return len(sampler.sample()[0])
"""
NVITOP = """
from nvitop import Device
devices = Device.all()
def look():
    return len([(device.as_snapshot(), device.processes()) for device in devices])
"""
TIMED = """
import statistics, time
found = [look(), look()]
spent = []
for _ in range(40):
    before = time.process_time()
    found.append(look())
    spent.append(time.process_time() - before)
    time.sleep(0.02)
assert set(found) == {8}, found
print(statistics.median(spent))
"""
"""CPU seconds of one look at all cards. Both read: name, use, memory, heat, power, fan, clocks, processes."""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "library").mkdir()
        driver = FakeNvml(build_library(folder / "library"), folder / "gpus.txt")
        driver.write([FakeGpu(utilization=90, processes={os.getpid(): GIB}) for _ in range(CARDS)])
        return [_recorder(driver, folder), _day(folder), *_beside_nvitop(driver)]


def _recorder(driver: FakeNvml, folder: Path) -> Result:
    share = float(_say(driver, sys.executable, RECORDER, str(folder), str(WATCHED_S)))
    return Result(
        f"recorder: share of a core with {CARDS} GPUs, %", 100 * share, SHARE_LIMIT_PERCENT, f"{100 * share:.2f} %"
    )


def _day(folder: Path) -> Result:
    file, largest = SampleFile(folder / "day.jsonl"), 0
    row = {"gpus": [{"index": 0, "uuid": "GPU-0", "memory_used_bytes": 1}], "filler": "x" * 850}
    for second in range(DAY_S):
        file.append({"time_s": float(second), **row})
        largest = max(largest, file.size_bytes)
        file.thin()
    return Result(
        "recorder: a day of samples / the bound",
        largest / MOST_BYTES,
        1.001,
        f"{largest / MIB:.1f} MiB at most; all of them would be {DAY_S * 920 / MIB:.0f} MiB",
    )


def _beside_nvitop(driver: FakeNvml) -> list[Result]:
    python = os.environ.get("NVITOP_PYTHON") or (sys.executable if importlib.util.find_spec("nvitop") else None)
    if python is None:
        print("nvitop is not compared: it is not installed (NVITOP_PYTHON may name a Python that has it)", flush=True)
        return []
    ours_s = float(_say(driver, sys.executable, OURS + TIMED))
    theirs_s = float(_say(driver, python, NVITOP + TIMED))
    return [
        Result(
            f"sampling {CARDS} GPUs: our CPU time / nvitop's",
            ours_s / theirs_s,
            1.0,
            f"{1000 * ours_s:.2f} ms / {1000 * theirs_s:.2f} ms",
        )
    ]


def _say(driver: FakeNvml, python: str, code: str, *arguments: str) -> str:
    """The last line that `code` prints, with the fake cards in its environment."""
    done = subprocess.run(
        [python, "-c", code, *arguments],
        env=driver.environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=WATCHED_S + 60,
    )
    return done.stdout.strip().splitlines()[-1]
