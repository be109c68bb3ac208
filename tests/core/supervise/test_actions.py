"""Stopping from a viewer, under the real keeper."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.launch import actions
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.state import read_state

from tests.core.launch.plans import small_plan
from tests.core.supervise.conftest import Starter


def test_stop_asks_for_a_checkpoint_and_returns_at_once(start: Starter) -> None:
    started = start(STEPS=100_000)
    started.wait_for_steps(3)
    assert actions.allowed(read_state(started.run)) >= {"stop", "stop_now"}
    actions.stop(started.run, now=False)
    state = started.wait(lambda state: state.has_ended)
    assert state.status == "stopped"
    assert list(started.run.path.glob("checkpoint-*"))
    assert "resume" in actions.allowed(state)


def test_stop_now_does_not_wait_for_one(start: Starter) -> None:
    started = start(STEPS=100_000, IGNORE_STOP=1)
    started.wait_for_steps(3)
    actions.stop(started.run, now=False)
    assert started.wait(lambda state: state.status == "stopping").status == "stopping"
    assert "stop" not in actions.allowed(read_state(started.run))
    actions.stop(started.run, now=True)
    assert started.wait(lambda state: state.has_ended).status == "stopped"


def test_an_active_run_is_not_resumed(start: Starter, tmp_path: Path) -> None:
    started = start(prepare_run(small_plan(), tmp_path / "prepared"), STEPS=100_000)
    started.wait_for_steps(1)
    with pytest.raises(UsageError, match="runs already"):
        actions.resume(started.run)
    assert read_state(started.run).is_active
    actions.stop(started.run, now=True)
