"""Runs of the stand-in training under the real keeper.

Waits are bounds against hanging alone: on a busy machine all of this takes many times as long.
"""

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from trainwiz.core.launch.start import start_keeper
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.run.state import RunState, read_state, write_state
from trainwiz.core.supervise.recovery import Setup, StartOrder

from tests.fakes.marked import describe, marked_pids, wait_until_gone
from tests.fakes.nvml import build_library, fixtures

driver = fixtures.driver
fake_nvml = fixtures.fake_nvml
WORKER = Path(__file__).parent / "worker.py"

# What `accelerate launch` does without its three seconds of imports: a parent that waits for its WORLD_SIZE ranks.
LIGHT_LAUNCHER = """
import os, subprocess, sys
ranks = range(int(os.environ.get("WORLD_SIZE", "1")))
children = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank)}) for rank in ranks]
for child in children:
    if child.wait():
        raise subprocess.CalledProcessError(child.returncode, child.args)
"""
PATIENCE_S = 400.0


@dataclass
class Started:
    """A run and what the test wants to know of it."""

    run: RunFolder
    mark: str

    def state(self) -> RunState:
        return read_state(self.run)

    def wait(self, good: Callable[[RunState], bool]) -> RunState:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            state = self.state()
            if good(state):
                return state
            time.sleep(0.05)
        log = self.run.train_log.read_text(errors="replace") if self.run.train_log.exists() else ""
        raise AssertionError(f"waited in vain: {self.state()}\n{log[-3000:]}")

    def wait_for_steps(self, count: int) -> None:
        self.wait(lambda state: _lines(self.run.metrics_jsonl) >= count or state.has_ended)
        assert _lines(self.run.metrics_jsonl) >= count, self.state()

    def supervisor(self) -> int:
        return self.state().supervisor.pid

    def launcher(self) -> int:
        return self.wait(lambda state: state.launcher is not None).launcher.pid

    def guard(self) -> int | None:
        """The child of the keeper that leads a process group of its own."""
        keeper = self.supervisor()
        for pid in marked_pids(self.mark):
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if os.getpgid(pid) == pid and psutil.Process(pid).ppid() == keeper:
                    return pid
        return None


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


class Starter:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[Started] = []

    def folder(self, name: str = "one", grace_s: float = 600.0) -> RunFolder:
        run = RunFolder(self.root / "runs" / name)
        run.path.mkdir(parents=True)
        run.run_yaml.write_text("name: one\n")
        write_state(run, RunState(status="prepared", name=name, created_s=time.time(), grace_s=grace_s))
        return run

    def __call__(
        self,
        run: RunFolder | None = None,
        *,
        resume: str | None = None,
        owner: ProcessId | None = None,
        command: list[str] | None = None,
        setup: Setup | None = None,
        renew: list[str] | None = None,
        expect: str | None = None,
        **variables: Any,
    ) -> Started:
        """`expect`: the code of a refusal."""
        run = run or self.folder()
        order = StartOrder(
            command=command or self.command(),
            mark=uuid.uuid4().hex,
            environment={key: str(value) for key, value in variables.items()},
            system_every_s=0.5,
            resume=resume,
            owner=owner,
            setup=setup,
            renew=renew or [],
        )
        started = Started(run, order.mark)
        self.started.append(started)
        answer = start_keeper(run, order)
        assert answer.get("error") == expect, answer
        return started

    def command(self) -> list[str]:
        return [sys.executable, "-c", LIGHT_LAUNCHER, str(WORKER), "."]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture(scope="module")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a module's own: a driver that a test did not let be closed stays open in this process."""
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for started in starter.started:
        for pid in marked_pids(started.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def assert_gone(mark: str) -> None:
    """No process of the run is left."""
    assert wait_until_gone(mark, 30.0) == [], describe(marked_pids(mark))


def system_lines(run: RunFolder) -> list[dict[str, Any]]:
    """All samples so far; none before the first."""
    if not run.system_jsonl.exists():
        return []
    return [json.loads(line) for line in run.system_jsonl.read_text().splitlines(keepends=True) if line.endswith("\n")]
