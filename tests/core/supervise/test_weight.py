"""The keeper stays light: what it loads, and what it and its guard weigh in a real run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.core.supervise.conftest import Starter
from tools.benchmarks.process_cost import OwnProcesses, cpu_seconds, memory_of

LOADED = """
import sys
import trainwiz.core.supervise.__main__
import trainwiz.core.telemetry.machine
import trainwiz.core.history.run
print(*{name.partition(".")[0] for name in sys.modules})
"""
"""All that a keeper loads from its start to its end."""
HEAVY = {"pydantic", "yaml", "torch", "numpy", "transformers", "accelerate", "datasets", "textual", "rich", "typer"}
MOST_BYTES = 60_000_000


def test_it_loads_no_configuration_and_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel divides shared memory on Linux only")
def test_keeper_and_guard_weigh_less_than_they_may(start: Starter) -> None:
    one = start(STEPS=100_000, STEP_S=0.05)
    one.wait_for_steps(3)
    own = OwnProcesses(one.mark, one.launcher())
    pids = own.now()
    assert len(pids) == 2 and one.supervisor() in pids
    memory = memory_of(pids)
    assert 0 < memory.uss <= memory.pss <= memory.rss < MOST_BYTES
    assert cpu_seconds(pids).keys() == set(pids)
