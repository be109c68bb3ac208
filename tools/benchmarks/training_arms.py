"""The same training twice: kept by trainwiz, and by plain `accelerate launch`. Each can be frozen while the other goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.telemetry.processes import tree_of

BIN = Path(sys.executable).parent
TRAINWIZ = str(BIN / "trainwiz")
CHOICES = ["--profile", "cpu-demo", "--max-steps", "20000", "--set", "logging.every_steps=1"]
"""Steps of 0.3 s or so on four cores, each of them logged; evaluations and checkpoints as the profile has them."""
PATIENCE_S = 180.0


def environment(place: Path) -> dict[str, str]:
    """The caller's, with all that trainwiz keeps outside run folders below `place`."""
    own = {f"XDG_{kind}_HOME": str(place / kind.lower()) for kind in ("CONFIG", "CACHE", "DATA", "STATE")}
    return {
        **os.environ,
        **own,
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "TRAINWIZ_LANG": "en",
    }


class Arm(ABC):
    """One training in a run folder. Leaving the block ends all of it."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.run = RunFolder(folder)
        self.variables = variables
        self._frozen: list[int] = []

    def rows(self) -> list[dict[str, Any]]:
        """The logged steps so far; evaluations are left out."""
        if not self.run.metrics_jsonl.exists():
            return []
        lines = self.run.metrics_jsonl.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in rows if row.get("loss") is not None]

    def wait_for_step(self, step: int) -> None:
        """Raises RuntimeError with the end of the log."""
        deadline = time.monotonic() + PATIENCE_S
        while not (rows := self.rows()) or rows[-1]["step"] < step:
            if self.has_ended() or time.monotonic() > deadline:
                raise RuntimeError(f"step {step} did not come; the log ends with:\n{self.log_end()}")
            time.sleep(0.1)

    @abstractmethod
    def has_ended(self) -> bool: ...

    def log_end(self) -> str:
        return self.run.train_log.read_text(errors="replace")[-2000:] if self.run.train_log.exists() else ""

    @abstractmethod
    def root(self) -> int:
        """The process that all others of this arm descend from."""

    def freeze(self) -> None:
        """Nothing of this arm takes any time of the CPU until `thaw`."""
        self._frozen = [member.pid for member in tree_of(self.root())]
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self._frozen = []

    def _signal(self, number: int) -> None:
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class KeptArm(Arm):
    """Under the keeper, as `trainwiz --yes --detach` starts it."""

    def __enter__(self) -> KeptArm:
        command = [TRAINWIZ, *CHOICES, "--output-dir", str(self.run.path), "--yes", "--detach"]
        subprocess.run(command, env=self.variables, check=True, capture_output=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.thaw()
        with self.stopping("--now"):
            return

    @contextlib.contextmanager
    def stopping(self, *how: str) -> Iterator[None]:
        """The run is told to stop; leaving the block waits until it has."""
        command = [TRAINWIZ, "runs", "stop", str(self.run.path), *how]
        process = subprocess.Popen(command, env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.wait()

    def has_ended(self) -> bool:
        return self.state().has_ended

    def state(self) -> RunState:
        return read_state(self.run)

    def root(self) -> int:
        supervisor = self.state().supervisor
        if supervisor is None:
            raise RuntimeError("the run has no keeper")
        return supervisor.pid


class PlainArm(Arm):
    """Under `accelerate launch` alone: the command of launch.sh, started by hand."""

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PlainArm:
        command = [TRAINWIZ, *CHOICES, "--output-dir", str(self.run.path), "--dry-run"]
        subprocess.run(command, env=self.variables, check=True, capture_output=True)
        with self.run.train_log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "launch.sh"],
                cwd=self.run.path,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is None:
            return
        # The training is a child of the launcher, in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def root(self) -> int:
        if self._process is None:
            raise RuntimeError("it was not started")
        return self._process.pid
