"""A run that goes on by itself, with a stand-in training below the real keeper."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.launch.start import stop_run
from trainwiz.core.run.attempts import attempt_words, read_recoveries
from trainwiz.core.run.state import RunState

from tests.core.supervise.conftest import Started, Starter
from tests.core.supervise.test_recovery import SETUP
from tests.fakes.marked import wait_until_gone

NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error"


def statuses(one: Started, until: Callable[[RunState], bool], patience_s: float = 40.0) -> list[str]:
    """Every status that a viewer could have read until then, without repetitions."""
    seen: list[str] = []
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        state = one.state()
        if not seen or seen[-1] != state.status:
            seen.append(state.status)
        if until(state):
            return seen
        time.sleep(0.005)
    raise AssertionError(f"waited in vain: {one.state()}")


def test_out_of_memory_goes_on_with_a_smaller_batch(start: Starter) -> None:
    one = start(FAIL_AT=17, FAIL_ONCE=1, STEPS=30, setup=SETUP)
    seen = statuses(one, lambda state: state.has_ended)
    assert [word for word in seen if word not in ("starting", "running")] == ["finished"]
    state = one.state()
    first, second = state.attempts
    assert (first.status, first.because, first.changes) == ("failed", None, {})
    assert first.exit["cause"] == "cuda_oom" and first.ended_s is not None
    assert (second.status, second.because, second.resume) == ("finished", "cuda_oom", "checkpoint-10")
    assert second.changes == {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}
    (entry,) = read_recoveries(one.run)
    assert (entry.attempt, entry.because, entry.after_step, entry.changes) == (2, "cuda_oom", 10, second.changes)
    assert (one.run.path / "attempts" / "1" / "failure-rank0.json").exists()
    assert wait_until_gone(one.mark, 3.0) == []


def test_what_passes_is_tried_a_stated_number_of_times(start: Starter) -> None:
    one = start(FAIL_AT=3, FAIL_WITH=NCCL, setup=replace(SETUP, max_restarts=1))
    state = one.wait(lambda state: state.has_ended, 40.0)
    assert state.status == "failed" and state.exit is not None and state.exit.cause == "nccl_error"
    assert len(state.attempts) == 2
    assert "1 times" in (state.attempts[-1].not_retried or "")
    assert wait_until_gone(one.mark, 3.0) == []


def test_an_error_of_the_code_is_not_repeated(start: Starter) -> None:
    one = start(FAIL_AT=3, FAIL_WITH="the rows are wrong", setup=SETUP)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed" and len(state.attempts) == 1
    assert "fail in the same way" in (state.attempts[0].not_retried or "")
    assert read_recoveries(one.run) == []


@pytest.mark.parametrize("victim", ["launcher", pytest.param("trainer", marks=pytest.mark.all)])
def test_a_kill_from_outside_is_made_good(start: Starter, victim: str) -> None:
    one = start(EXTRA=1, STEPS=40, STEP_S=0.1, processes=1 if victim == "trainer" else None, setup=SETUP)
    one.wait_for_steps(11, 60.0)
    state = one.wait(lambda state: bool(state.workers))
    os.kill(one.launcher() if victim == "launcher" else state.workers[0].pid, signal.SIGKILL)
    state = one.wait(lambda state: state.has_ended, 60.0)
    assert state.status == "finished"
    assert (state.attempts[1].because, state.attempts[1].signal) == ("unknown", "SIGKILL")
    assert attempt_words(state.attempts[1], {}).startswith("attempt 2, as SIGKILL from outside ended it; from step")
    assert int((state.attempts[1].resume or "").rpartition("-")[2]) >= 10
    assert wait_until_gone(one.mark, 3.0) == []


@pytest.mark.parametrize("now", [False])
def test_a_stop_while_the_next_attempt_is_being_written_is_heeded_at_once(start: Starter, now: bool) -> None:
    one = start(FAIL_AT=13, setup=SETUP, renew=[sys.executable, "-c", "import time; time.sleep(100)"])
    one.wait(lambda state: bool(read_recoveries(one.run)))
    before = one.state().heartbeat_s
    one.wait(lambda state: state.heartbeat_s != before, 5.0)
    asked = time.monotonic()
    state = stop_run(one.run, now=now)
    assert time.monotonic() - asked < 5.0
    assert state.status == "stopped" and [attempt.status for attempt in state.attempts] == ["failed"]
    # What did not begin is no attempt, and changes nothing.
    assert read_recoveries(one.run) == []
    assert wait_until_gone(one.mark, 3.0) == []


def test_a_stop_in_a_later_attempt_keeps_the_work(start: Starter) -> None:
    one = start(FAIL_AT=13, FAIL_ONCE=1, STEP_S=0.1, setup=SETUP)
    one.wait(lambda state: len(state.attempts) == 2 and state.status == "running")
    one.wait_for_steps(18)
    state = stop_run(one.run)
    assert state.status == "stopped" and state.outcome is not None
    assert (one.run.path / f"checkpoint-{state.outcome['step']}" / "trainer_state.json").exists()


def test_the_keeper_killed_between_two_attempts_leaves_a_run_that_can_be_resumed(start: Starter) -> None:
    one = start(FAIL_AT=13, FAIL_WITH=NCCL, FAIL_ONCE=1, setup=SETUP)
    one.wait(lambda state: state.attempts[-1].status == "failed")
    os.kill(one.supervisor(), signal.SIGKILL)
    assert wait_until_gone(one.mark, 5.0) == []
    assert one.state().status == "lost"
    again = start(one.run, resume="auto", STEPS=30)
    state = again.wait(lambda state: state.has_ended)
    assert [attempt.status for attempt in state.attempts] == ["failed", "finished"]


RENEW = """
import json, sys
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.attempts import changes_now
from pathlib import Path
now = changes_now(RunFolder(Path(sys.argv[1])))
print(json.dumps({"command": sys.argv[2:], "environment": {"STEPS": "60", "STEP_S": "0.1", "SEEN": json.dumps(now)}, "setup": None}))
"""


def test_the_next_attempt_has_the_command_of_its_own_settings(start: Starter) -> None:
    run = start.folder()
    command = start._command(run, None)
    one = start(run, FAIL_AT=13, FAIL_ONCE=1, setup=SETUP, renew=[sys.executable, "-c", RENEW, str(run.path), *command])
    one.wait(lambda state: len(state.attempts) == 2 and bool(state.workers))
    (worker,) = one.state().workers
    variables = dict(line.split("=", 1) for line in Path(f"/proc/{worker.pid}/environ").read_text().split("\0") if line)
    assert json.loads(variables["SEEN"])["batch.micro_batch_size"] == 3
    assert one.wait(lambda state: state.has_ended).status == "finished"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('print(\'{"error": "run.yaml is broken."}\')', "run.yaml is broken."),
        ("raise SystemExit('no such module')", "no such module"),
    ],
)
def test_a_next_attempt_that_cannot_be_written_is_a_sentence(start: Starter, code: str, said: str) -> None:
    one = start(FAIL_AT=13, setup=SETUP, renew=[sys.executable, "-c", code])
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed" and state.exit is not None and state.exit.cause == "cuda_oom"
    assert said in (state.attempts[-1].not_retried or "")
    # What did not begin is no attempt, and changes nothing.
    assert len(state.attempts) == 1 and read_recoveries(one.run) == []
    assert wait_until_gone(one.mark, 3.0) == []


SPOILER = """
import json, sys
from pathlib import Path
log = Path(sys.argv[1], "train.log")
log.rename(log.with_name("before.log"))
log.mkdir()
print(json.dumps({"command": sys.argv[2:], "environment": {}, "setup": None}))
"""


def test_an_attempt_whose_folder_cannot_be_prepared_is_none(start: Starter) -> None:
    run = start.folder()
    command = start._command(run, None)
    one = start(run, FAIL_AT=13, setup=SETUP, renew=[sys.executable, "-c", SPOILER, str(run.path), *command])
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed" and state.exit is not None and state.exit.cause == "cuda_oom"
    (attempt,) = state.attempts
    assert "could not be written (Is a directory)" in (attempt.not_retried or "")
    assert wait_until_gone(one.mark, 3.0) == []
