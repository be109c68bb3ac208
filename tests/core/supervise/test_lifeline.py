"""The lifeline alone, without keeper or guard: who dies when whom is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

import pytest
from trainwiz.core.run.folder import RUN_MARK_VARIABLE
from trainwiz.core.run.lost import identify
from trainwiz.core.supervise.ties import KEEPER_VARIABLE, hold_to_parent, keeper_value

from tests.fakes.marked import marked_pids, wait_until_gone

TRAINER = """
import multiprocessing, time
from trainwiz.core.supervise.ties import hold_to_parent
held = hold_to_parent()
multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True).start()
print("held" if held else "free", flush=True)
time.sleep(600)
"""
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


class Family:
    """A stand-in keeper, a launcher and a trainer that holds to both."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.keeper = subprocess.Popen(["sleep", "600"])
        identity = identify(self.keeper.pid)
        assert identity is not None
        marks = {RUN_MARK_VARIABLE: self.mark, KEEPER_VARIABLE: keeper_value(identity)}
        self.launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, TRAINER],
            env={**os.environ, **marks},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.launcher.stdout.readline().strip()

    def end(self) -> None:
        for process in (self.keeper, self.launcher):
            process.kill()
            process.wait()
        if self.launcher.stdout:
            self.launcher.stdout.close()
        for pid in marked_pids(self.mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["launcher", "keeper"])
def test_trainer_and_its_loader_end_with_the_launcher_and_with_the_keeper(victim: str) -> None:
    family = Family()
    try:
        assert family.said == "held"
        assert len(marked_pids(family.mark)) == 3
        process = getattr(family, victim)
        process.kill()
        process.wait()
        family.launcher.wait(timeout=600)
        assert wait_until_gone(family.mark, 30.0) == []
    finally:
        family.end()


def test_a_trainer_that_comes_too_late_ends_at_once() -> None:
    gone = subprocess.Popen(["true"])
    identity = identify(gone.pid)
    gone.wait()
    value = keeper_value(identity) if identity else f"{gone.pid}:1"
    environment = {**os.environ, RUN_MARK_VARIABLE: uuid.uuid4().hex, KEEPER_VARIABLE: value}
    late = subprocess.run([sys.executable, "-c", TRAINER], env=environment, timeout=200, check=False)
    assert late.returncode == -signal.SIGKILL


def test_a_training_by_hand_holds_to_nobody() -> None:
    assert KEEPER_VARIABLE not in os.environ
    assert hold_to_parent() is False
