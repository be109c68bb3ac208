import os
import subprocess
import sys
import threading

import pytest
from trainwiz.core.export.launch_script import launch_environment
from trainwiz.core.run.openmp import AWAKE, POLICY, SPINS
from trainwiz.core.training import core_watch as watching
from trainwiz.core.training.core_watch import CoreWatch, core_watch
from trainwiz.core.training.thread_rest import openmp_libraries

from tests.core.export.solved_config import solved_config

NEEDS_GNU = pytest.mark.skipif(not openmp_libraries(), reason="this torch has another OpenMP than GNU's")


class Looks:
    """What each look finds."""

    def __init__(self, *missing: float) -> None:
        self.left = list(missing)

    def missing(self, threads: int) -> float:
        assert threads == 4
        return self.left.pop(0)


class Rest:
    held = False

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


def asleep_after_each(*missing: float) -> str:
    rest = Rest()
    watch = CoreWatch(Looks(*missing), 4, rest)  # type: ignore[arg-type]
    assert rest.held, "it begins asleep"
    found = ""
    for _ in missing:
        watch.look()
        found += "z" if rest.held else "A"
    return found


def test_awake_after_two_free_looks_asleep_after_a_crowded_one() -> None:
    assert asleep_after_each(0.0, 0.1, 0.0, 0.9, 0.9) == "zAAzz"
    assert asleep_after_each(0.0, 0.4, 0.0, 0.2) == "zzzA", "two looks running"
    assert asleep_after_each(0.0, 0.0, 0.4, 0.4) == "zAAA", "between both it stays as it is"
    assert asleep_after_each(-3.0, -2.0, 0.0, float("inf"), 0.0) == "zAAzz"


def test_no_thread_is_left_and_they_may_wait_awake_at_the_end() -> None:
    rest, over = Rest(), threading.Event()
    watch = CoreWatch(Looks(), 4, rest)  # type: ignore[arg-type]
    over.set()
    watch.until(over)
    assert not rest.held


@pytest.mark.parametrize(
    ("policy", "spins"), [(None, None), ("PASSIVE", "2000"), ("PASSIVE", None), ("ACTIVE", AWAKE), (None, AWAKE)]
)
def test_who_waits_otherwise_is_not_watched(
    policy: str | None, spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((POLICY, policy), (SPINS, spins)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(watching, "CoreWatch", None)
    before = threading.active_count()
    with core_watch():
        assert threading.active_count() == before


SEEN = """
import os, subprocess, sys, time
from trainwiz.core.hardware import core_load
from trainwiz.core.training import core_watch as watching
from trainwiz.core.training.thread_rest import ThreadRest
made = []

class Seen(ThreadRest):
    def __init__(self):
        super().__init__()
        made.append(self)

watching.ThreadRest = Seen
"""
CROWDED = """
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
watching.LOOK_S = 0.1
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
found = []
try:
    with watching.core_watch():
        for _ in range(20):
            time.sleep(0.1)
            found.append(made[0].held)
finally:
    for process in busy:
        process.kill()
print(all(found), made[0].held)
"""
FREE = """
watching.LOOK_S = 0.05
watching.bounds_of_this_process = lambda: [core_load.Bound(2, time.process_time)]
with watching.core_watch():
    assert made[0].held
    end = time.monotonic() + 60
    while made[0].held and time.monotonic() < end:
        time.sleep(0.02)
    print(made[0].held)
"""


def said_by(code: str) -> list[str]:
    """Words of a process in the environment of a training."""
    environment = {**os.environ, **launch_environment(solved_config("cpu-demo")), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SEEN + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@NEEDS_GNU
def test_beside_busy_processes_a_real_one_stays_asleep() -> None:
    assert said_by(CROWDED) == ["True", "False"]


@NEEDS_GNU
def test_where_nothing_else_runs_a_real_one_wakes() -> None:
    assert said_by(FREE) == ["False"]
