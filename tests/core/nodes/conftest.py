"""A run of two machines, started by `trainwiz runs join` on each, as its users start it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, read_state

from tests.core.launch.plans import plan_for
from tests.core.training.runs import tiny_config
from tests.fakes.namespaces import TwoMachines, why_not

PORT = 29500


class TwoNodes:
    """The run folder that both machines share, and what was started on each."""

    def __init__(self, machines: TwoMachines, folder: Path, port: int = PORT) -> None:
        self.machines = machines
        self.folder = folder
        self.port = port
        self.run = RunFolder(folder)
        self.started: dict[int, subprocess.Popen[bytes]] = {}

    def prepare(self, **changes: Any) -> None:
        """`changes` as those of tiny_config."""
        values = {"engine__nodes": 2, "engine__strategy": "ddp", "engine__nodes_timeout_s": 60, **changes}
        prepare_run(plan_for(tiny_config(**values)), self.folder)

    def join(self, node: int) -> None:
        command = [sys.executable, "-m", "trainwiz.tui.cli", "runs", "join", str(self.folder), "--node", str(node)]
        command += ["--main", f"{self.machines.addresses[0]}:{self.port}"]
        with self.said(node).open("ab") as output:
            self.started[node] = subprocess.Popen(
                self.machines.on(node, command),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def said(self, node: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}-{node}.out")

    def end_of(self, node: int, patience_s: float = 600.0) -> int:
        """The exit code of what was started on a machine."""
        return self.started[node].wait(patience_s)

    def text(self, node: int) -> str:
        return self.said(node).read_text(encoding="utf-8", errors="replace")

    def log(self) -> str:
        return self.run.train_log.read_text(encoding="utf-8", errors="replace") if self.run.train_log.exists() else ""

    def until(self, good: Callable[[], bool], patience_s: float = 600.0) -> None:
        deadline = time.monotonic() + patience_s
        while not good():
            assert time.monotonic() < deadline, f"not in time\n{self.log()}\n{self.text(0)}"
            time.sleep(0.1)

    def until_step(self, step: int) -> None:
        self.until(lambda: f"step {step}/" in self.log())

    def state(self) -> RunState:
        return read_state(self.run)

    def kill(self, machine: int) -> None:
        """All that runs on a machine, at once."""
        for pid in self.machines.processes(machine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for machine in (0, 1):
            self.kill(machine)
        for process in self.started.values():
            process.wait(120)


@pytest.fixture(scope="session")
def machines() -> Iterator[TwoMachines]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    found = TwoMachines.make()
    yield found
    found.remove()


@pytest.fixture
def two(machines: TwoMachines, tmp_path: Path) -> Iterator[TwoNodes]:
    nodes = TwoNodes(machines, tmp_path / "run")
    yield nodes
    nodes.close()
