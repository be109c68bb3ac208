"""A run that goes on by itself, and one that is stopped, with a stand-in training below the real keeper."""

import json
import os
import signal
import sys
import time

import pytest
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.attempts import attempt_words, read_recoveries
from trainwiz.core.run.checkpoints import list_checkpoints, newest_complete
from trainwiz.core.run.listing import last_metrics
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.attempt import CannotStart, renew

from tests.core.launch.plans import small_plan
from tests.core.supervise.conftest import Started, Starter, assert_gone
from tests.core.supervise.test_recovery import SETUP
from tests.site import FAULTS_VARIABLE

NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error"

RENEW = """
import json, sys
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.attempts import changes_now
from pathlib import Path
now = changes_now(RunFolder(Path(sys.argv[1])))
variables = {"STEPS": "40", "STEP_S": "0.1", "SEEN": json.dumps(now)}
told = ["bash", "-c", 'printenv SEEN > "$0"; exec "$@"', sys.argv[1] + "/seen.json", *sys.argv[2:]]
print(json.dumps({"command": told, "environment": variables}))
"""


def test_out_of_memory_goes_on_with_the_command_of_its_smaller_batch(start: Starter) -> None:
    run = start.folder()
    renewal = [sys.executable, "-c", RENEW, str(run.path), *start.command()]
    one = start(run, FAIL_AT=17, FAIL_ONCE=1, setup=SETUP, renew=renewal)
    seen = set[str]()
    while not (state := one.state()).has_ended:
        # Every status that a viewer could have read until then.
        seen.add(state.status)
        time.sleep(0.01)
    assert seen <= {"starting", "running"} and state.status == "finished"
    first, second = state.attempts
    assert (first.status, first.because, first.changes) == ("failed", None, {})
    assert first.exit["cause"] == "cuda_oom" and first.ended_s is not None
    assert (second.status, second.because, second.resume) == ("finished", "cuda_oom", "checkpoint-10")
    assert second.changes == {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}
    (entry,) = read_recoveries(one.run)
    assert (entry.attempt, entry.because, entry.after_step, entry.changes) == (2, "cuda_oom", 10, second.changes)
    assert (one.run.path / "attempts" / "1" / "failure-rank0.json").exists()
    assert json.loads((one.run.path / "seen.json").read_text()) == second.changes
    assert_gone(one.mark)


def test_a_kill_from_outside_is_made_good_and_a_stop_in_the_next_attempt_keeps_its_work(start: Starter) -> None:
    one = start(EXTRA=1, setup=SETUP)
    one.wait_for_steps(11)
    os.kill(one.launcher(), signal.SIGKILL)
    state = one.wait(lambda state: len(state.attempts) == 2 and state.status == "running")
    first, second = state.attempts
    assert first.status == "failed" and "SIGKILL" in first.exit["message"]
    assert (second.because, second.signal) == ("unknown", "SIGKILL")
    assert attempt_words(second, {}).startswith("attempt 2, because an external SIGKILL terminated it; from step")
    assert int((second.resume or "").rpartition("-")[2]) >= 10
    one.wait_for_steps(18)
    state = stop_run(one.run)
    assert state.status == "stopped"
    assert (one.run.path / f"checkpoint-{state.outcome['step']}" / "trainer_state.json").exists()
    assert_gone(one.mark)


def test_a_stop_while_the_next_attempt_is_being_written_is_heeded_at_once(start: Starter) -> None:
    one = start(FAIL_AT=13, setup=SETUP, renew=[sys.executable, "-c", "import time; time.sleep(3000)"])
    one.wait(lambda state: bool(read_recoveries(one.run)))
    before = one.state().heartbeat_s
    one.wait(lambda state: state.heartbeat_s != before)
    state = stop_run(one.run)
    assert state.status == "stopped" and [attempt.status for attempt in state.attempts] == ["failed"]
    # What did not begin is no attempt, and changes nothing.
    assert read_recoveries(one.run) == []
    assert_gone(one.mark)


def test_a_stop_while_it_waits_between_attempts_ends_at_once(start: Starter) -> None:
    one = start(setup=SETUP, FAIL_AT=3, FAIL_WITH=NCCL)
    state = one.wait(lambda state: state.has_ended or state.attempts[-1].ended_s is not None)
    assert state.status == "starting", state
    state = stop_run(one.run)
    assert state.status == "stopped" and state.exit.code == 130 and len(state.attempts) == 1
    assert state.stop["verified"]["processes_left"] == []
    assert_gone(one.mark)


def test_the_keeper_killed_between_two_attempts_leaves_a_run_that_can_be_resumed(start: Starter) -> None:
    one = start(FAIL_AT=13, FAIL_WITH=NCCL, FAIL_ONCE=1, setup=SETUP)
    one.wait(lambda state: state.attempts[-1].status == "failed")
    os.kill(one.supervisor(), signal.SIGKILL)
    assert_gone(one.mark)
    assert one.state().status == "lost"
    again = start(one.run, resume="auto", STEPS=30)
    state = again.wait(lambda state: state.has_ended)
    assert [attempt.status for attempt in state.attempts] == ["failed", "finished"]


SPOILER = """
import json, sys
from pathlib import Path
log = Path(sys.argv[1], "train.log")
log.rename(log.with_name("before.log"))
log.mkdir()
print(json.dumps({"command": sys.argv[2:], "environment": {}}))
"""


def test_a_next_attempt_that_cannot_begin_is_a_sentence_and_none(start: Starter) -> None:
    run = start.folder()
    one = start(run, FAIL_AT=3, setup=SETUP, renew=[sys.executable, "-c", SPOILER, str(run.path), *start.command()])
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed" and state.exit.cause == "cuda_oom"
    (attempt,) = state.attempts
    assert "could not be written (Is a directory)" in (attempt.not_retried or "")
    assert_gone(one.mark)


def test_what_the_child_says_that_writes_the_next_attempt() -> None:
    answer = {"command": ["x"], "environment": {}}
    assert renew([sys.executable, "-c", f"import json; print(json.dumps({answer!r}))"], {}) == answer
    error = """print('{"error": "run.yaml is broken."}')"""
    silent = (("raise SystemExit('no such module')", "(no such module)"), ("", "(no output)"))
    for code, said in (*silent, (error, "run.yaml is broken.")):
        with pytest.raises(CannotStart) as caught:
            renew([sys.executable, "-c", code], {})
        assert said in str(caught.value)


# A stop, its window, and what is verified afterwards.


def test_a_save_that_still_grows_is_not_cut(start: Starter) -> None:
    # No step is measured, so the window stays at what the state says.
    one = start(start.folder(grace_s=1.0), SAVE_S=2.5)
    one.wait_for_steps(2)
    state = stop_run(one.run)
    assert state.status == "stopped" and "was killed" not in state.exit.message
    assert (one.run.path / f"checkpoint-{state.outcome['step']}" / "trainer_state.json").exists()


@pytest.mark.real
def test_a_real_training_goes_on_as_3_by_4_and_is_killed_whole(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the real accelerate."""
    changes = {"batch__micro_batch_size": 6, "batch__gradient_accumulation_steps": 2, "training__max_steps": 100_000}
    plan = small_plan(**changes, checkpoint__every_steps=5, evaluation__every_steps=100_000)
    run = prepare_run(plan, start.root / "one")
    planned = {name: run.file(name).read_text() for name in ("run.yaml", "plan.json", "accelerate.yaml")}
    monkeypatch.setenv(FAULTS_VARIABLE, "oom@7:above=3")
    start_run(run)
    one = Started(run, read_state(run).mark or "")
    start.started.append(one)
    # What the second attempt computes with is in the state a moment after its first step.
    state = one.wait(
        lambda state: (
            state.has_ended
            or (state.engine.get("micro_batch_size") == 3 and last_metrics(run.metrics_jsonl).get("step", 0) >= 12)
        )
    )
    batch = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 4}
    assert [attempt.because for attempt in state.attempts] == [None, "cuda_oom"], one.run.train_log.read_text()[-3000:]
    assert [attempt.changes for attempt in state.attempts] == [{}, batch]
    assert [attempt.resume for attempt in state.attempts] == [None, "checkpoint-5"]
    assert {name: run.file(name).read_text() for name in planned} == planned
    complete = [found.step for found in list_checkpoints(run) if found.problem is None]

    os.kill(state.supervisor.pid, signal.SIGKILL)
    assert_gone(one.mark)
    assert one.state().status == "lost"
    assert int(newest_complete(run).name.partition("-")[2]) >= complete[-1] >= 10
    steps = {json.loads(line).get("step", 0) for line in run.metrics_jsonl.read_text().splitlines()}
    assert {*range(1, max(steps))} <= steps, "it went on with the step after its checkpoint: nothing is left out"
