"""Workshop: the undisturbed runs of a campaign, and a run that was stopped half way, to be hurt as copies."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tools.faults.box import Box
from tools.faults.fault import Moment
from tools.faults.moments import wait_for
from tools.faults.scenario import SCENARIOS

HALF_WAY = 8.0


class NotUndisturbedError(Exception):
    """The runs that the others are compared with did not go well: no campaign without them."""


@dataclass(frozen=True, slots=True)
class Undisturbed:
    run: Path
    seconds: float


class Workshop:
    def __init__(self, root: Path, patience_s: float) -> None:
        self.root = root
        self.patience_s = patience_s
        self.undisturbed: dict[str, Undisturbed] = {}
        self.half: dict[str, Path] = {}

    def prepare(self, name: str, *, half: bool) -> None:
        """Raises NotUndisturbedError."""
        box = Box(self.root / f"undisturbed-{name}")
        began = time.monotonic()
        front = box.new_run(SCENARIOS[name])
        code = front.wait(self.patience_s)
        front.end()
        if code != 0:
            raise NotUndisturbedError(f"{name} ended with {code}:\n{front.text()[-3000:]}")
        self.undisturbed[name] = Undisturbed(box.run, time.monotonic() - began)
        if half:
            self.half[name] = self._stopped(name)

    def _stopped(self, name: str) -> Path:
        box = Box(self.root / f"half-{name}")
        front = box.new_run(SCENARIOS[name])
        hit = wait_for(Moment("step", HALF_WAY), box.run, 1.0, lambda: front.process.poll() is not None)
        if hit:
            os.kill(front.process.pid, signal.SIGINT)
        code = front.wait(self.patience_s)
        front.end()
        if not hit or code != 130:
            raise NotUndisturbedError(f"{name}, stopped half way, ended with {code}:\n{front.text()[-3000:]}")
        return box.run

    def copy_half(self, name: str, target: Path) -> None:
        shutil.copytree(self.half[name], target, symlinks=True)
