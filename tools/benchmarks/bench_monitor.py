"""What the live monitor costs: attaching, CPU at 1 Hz beside nvitop's, lag of its loop under a flood of log, memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.monitor import MonitorScreen

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, build_library
from tools.benchmarks.live_run import write_points
from tools.benchmarks.measure import Result
from tools.benchmarks.terminal import Terminal, cpu_seconds, thread_seconds

POINTS = 100_000
MANY_POINTS = 1_000_000
WINDOW_S, WINDOWS = 10.0, 5
SETTLED_S = 3.0
NVITOP_VARIABLE = "NVITOP"
"""Path of nvitop, where it is not on PATH; it is installed apart, as it pins nvidia-ml-py."""
HERE = Path(__file__).resolve().parents[2]
MONITOR = [str(Path(sys.executable).parent / "trainwiz"), "monitor"]


@contextmanager
def live_run(folder: Path, driver: FakeNvml, gpus: int, points: int) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on in a process of its own, on so many fake GPUs that it keeps busy."""
    cards = [FakeGpu(utilization=90, memory_used=5 * GIB, temperature=70, power=200.0) for _ in range(gpus)]
    driver.write(cards)
    command = [sys.executable, "-m", "tools.benchmarks.live_run", str(folder), "--points", str(points)]
    process = subprocess.Popen(command, env=driver.environment(), cwd=HERE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        driver.write([replace(card, processes={process.pid: 4 * GIB}) for card in cards])
        yield process
    finally:
        process.kill()
        process.wait()


def attach(folder: Path, driver: FakeNvml, points: int) -> tuple[float, float]:
    """Wall and CPU seconds from the command until the plot of all points is on the screen."""
    with Terminal([*MONITOR, str(folder)], driver.environment(), str(folder)) as terminal:
        # The end of the step axis: it is there when the newest point was read.
        wall = terminal.seconds_until(f"{points // 1000:,},".encode(), b"util")
        return wall, cpu_seconds(terminal.pid)


def nvitop_command() -> list[str] | None:
    found = os.environ.get(NVITOP_VARIABLE) or shutil.which("nvitop")
    return None if found is None else [found, "--interval", "1"]


@dataclass(frozen=True)
class Shares:
    """Percent of a core in one window of time; nvitop's is None where it is not there."""

    monitor: float
    nvitop: float | None
    run: float
    """The run's own recorder and writer."""


def shares(folder: Path, driver: FakeNvml, run: int) -> list[Shares]:
    """WINDOWS windows in which the monitor and nvitop run side by side, so that a busy machine slows both alike."""
    with ExitStack() as stack:
        commands = [[*MONITOR, str(folder)], *filter(None, [nvitop_command()])]
        terminals = [stack.enter_context(Terminal(one, driver.environment(), str(folder))) for one in commands]
        terminals[0].seconds_until(f"{POINTS // 1000:,},".encode())
        time.sleep(SETTLED_S)
        pids = [run, *(terminal.pid for terminal in terminals)]
        windows = []
        for _ in range(WINDOWS):
            before, began = [thread_seconds(pid) for pid in pids], time.perf_counter()
            time.sleep(WINDOW_S)
            span = time.perf_counter() - began
            of_run, ours, *theirs = [
                (thread_seconds(pid) - start) / span * 100 for pid, start in zip(pids, before, strict=True)
            ]
            windows.append(Shares(ours, theirs[0] if theirs else None, of_run))
        return windows


def beside_nvitop(root: Path, driver: FakeNvml, gpus: int) -> Iterator[Result]:
    """The monitor's CPU on a run with POINTS points, alone and over nvitop's on the same cards at the same pace."""
    folder = root / f"run-{gpus}"
    cards = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    with live_run(folder, driver, gpus, POINTS) as run:
        if gpus == 1:
            wall, cpu = min(attach(folder, driver, POINTS) for _ in range(5))
            detail = f"{wall:.2f} s, of them {cpu:.2f} s on the CPU, the best of 5"
            yield Result("monitor: attach to 100,000 points, s", wall, 1.0, detail)
        windows = shares(folder, driver, run.pid)
    ours = median(window.monitor for window in windows)
    recorder = median(window.run for window in windows)
    detail = f"{ours:.2f} % of a core; recorder and writer of the run {recorder:.2f} %"
    yield Result(f"monitor: CPU at 1 Hz, {cards}, percent of a core", ours, 2.0, detail)
    theirs = [window.nvitop for window in windows if window.nvitop]
    if not theirs:
        print(f"not run: the comparison with nvitop, which is not on PATH; {NVITOP_VARIABLE} can name it")
        return
    ratio = ours / median(theirs)
    yield Result(f"monitor: CPU / nvitop's, {cards}", ratio, 1.0, f"{ours:.2f} % / {median(theirs):.2f} %")


async def lag_ms(folder: Path, burst: int, lines_per_s: int, seconds: float) -> float:
    """The longest time that the loop of the monitor was away while the log grew."""
    log = folder / "train.log"
    longest, written = 0.0, 0
    app = TrainwizApp(lambda: MonitorScreen(Target.of_run(RunFolder(folder))), ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        while app.screen.snapshot is None or app.screen.snapshot.behind:  # type: ignore[attr-defined]
            await pilot.pause(0.1)
        await pilot.pause(1.5)
        if burst:
            append(log, burst)
        began = last = time.perf_counter()
        while last - began < seconds:
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            longest = max(longest, now - last - 0.002)
            due = int((now - began) * lines_per_s)
            if due > written + lines_per_s // 20:
                append(log, due - written)
                written = due
            last = time.perf_counter()
    return longest * 1000


def append(log: Path, lines: int) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"2026-11-21 14:02:11 INFO trainer: line {line} of many\n" for line in range(lines))


def resident_mb(folder: Path, driver: FakeNvml) -> float:
    """Resident memory of the monitor once it has read all of a run."""
    with Terminal([*MONITOR, str(folder)], driver.environment(), str(folder)) as terminal:
        terminal.seconds_until(f"{MANY_POINTS:,}".encode(), timeout_s=60)
        time.sleep(SETTLED_S)
        return terminal.rss_bytes() / 1e6


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        driver = FakeNvml(build_library(root), root / "gpus.txt")
        for gpus in (1, 8):
            yield from beside_nvitop(root, driver, gpus)
        folder = root / "flooded"
        write_points(RunFolder(folder), POINTS)
        steady = asyncio.run(lag_ms(folder, 0, 1_000, 10))
        yield Result("monitor: loop lag with 1,000 log lines a second, ms", steady, 50.0, f"{steady:.0f} ms at most")
        flood = asyncio.run(lag_ms(folder, 50_000, 0, 5))
        yield Result("monitor: loop lag with 50,000 lines at once, ms", flood, 50.0, f"{flood:.0f} ms at most")
        write_points(RunFolder(root / "million"), MANY_POINTS)
        memory = resident_mb(root / "million", driver)
        yield Result("monitor: memory with a million points, MB", memory, 150.0, f"{memory:.0f} MB resident")


def main() -> int:
    failed = 0
    for result in run():
        failed += not result.holds
        print(f"{'holds' if result.holds else 'FAILS'}  {result.claim}: {result.detail}, limit {result.limit:g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
