"""The keeper above the real `accelerate launch`, two processes under its torchrun. One process: test_training.py."""

from __future__ import annotations

import os
import signal

import pytest
from trainwiz.core.run.checkpoints import newest_complete

from tests.core.supervise.conftest import Starter
from tests.fakes.marked import describe, marked_pids, wait_until_gone

pytestmark = pytest.mark.real

START_TAKES_S = 90.0


def test_a_stop_reaches_every_rank(start: Starter) -> None:
    one = start(processes=2)
    one.wait_for_steps(5, START_TAKES_S)
    state = one.wait(lambda state: len(state.workers) == 2)
    os.kill(one.supervisor(), signal.SIGTERM)
    state = one.wait(lambda state: state.has_ended, START_TAKES_S)
    assert state.status == "stopped"
    assert state.attempts[0].launcher_exit_code == 0
    newest = newest_complete(one.run)
    assert newest.name == f"checkpoint-{state.outcome['step']}"
    assert wait_until_gone(one.mark, 3.0) == [], describe(marked_pids(one.mark))


@pytest.mark.parametrize("victim", ["supervisor", pytest.param("launcher", marks=pytest.mark.all)])
def test_sigkill_leaves_no_rank_behind(start: Starter, victim: str) -> None:
    one = start(processes=2, EXTRA=1)
    one.wait_for_steps(12, START_TAKES_S)
    os.kill(one.supervisor() if victim == "supervisor" else one.launcher(), signal.SIGKILL)
    assert wait_until_gone(one.mark, 6.0) == [], describe(marked_pids(one.mark))
    assert one.state().status == ("lost" if victim == "supervisor" else "failed")
    assert newest_complete(one.run) is not None


@pytest.mark.all
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_torchrun_leaves_no_rank_behind(start: Starter, number: signal.Signals) -> None:
    one = start(processes=2)
    one.wait_for_steps(12, START_TAKES_S)
    os.kill(one.launcher(), number)
    state = one.wait(lambda state: state.has_ended, START_TAKES_S)
    assert state.status in ("stopped", "failed")
    assert "resume" in (state.exit.remedy or "")
    assert wait_until_gone(one.mark, 6.0) == [], describe(marked_pids(one.mark))
    assert newest_complete(one.run) is not None


def test_the_first_failure_of_two_ranks_is_the_cause(start: Starter) -> None:
    one = start(processes=2, FAIL_AT=4)
    state = one.wait(lambda state: state.has_ended, START_TAKES_S)
    assert state.status == "failed"
    assert state.exit.cause == "cuda_oom"
    assert wait_until_gone(one.mark, 3.0) == []
