"""A run whose keeper is lost, stopped, or whose folder is moved or written over, under the real keeper."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RUN_MARK_VARIABLE, RunFolder
from trainwiz.core.run.lost import HEARTBEAT_LOST_S
from trainwiz.core.run.state import read_state

from tests.core.supervise.conftest import Starter
from tests.fakes.marked import marked_pids, wait_until_gone


def test_a_killed_keeper_is_lost_at_once_and_its_run_goes_on_at_once(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    os.kill(one.supervisor(), signal.SIGKILL)
    began = time.monotonic()
    one.wait(lambda state: state.status == "lost", patience_s=2.0)
    assert time.monotonic() - began < HEARTBEAT_LOST_S / 10
    again = start(one.run, resume="auto", STEPS=30)
    assert wait_until_gone(one.mark, 0.5) == []
    state = again.wait(lambda state: state.has_ended)
    assert state.status == "finished"
    assert state.attempts[1].resume is not None
    # How long the lost attempt lasted is known from its last heartbeat.
    first = state.attempts[0]
    assert first.ended_s is not None
    assert first.started_s <= first.ended_s <= state.attempts[1].started_s


def test_what_keeper_and_guard_could_not_end_is_ended_before_the_next_attempt(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    # A helper of the training that holds to nobody: without parent, in a session of its own.
    code = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"
    stray = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, RUN_MARK_VARIABLE: one.mark}, start_new_session=True
    )
    everybody = [pid for pid in marked_pids(one.mark) if pid != stray.pid]
    try:
        # Keeper and guard stand still first: neither may see the end of the other.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everybody:
                os.kill(pid, number)
        one.wait(lambda state: state.status == "lost", patience_s=5.0)
        assert stray.poll() is None
        again = start(one.run, resume="auto", STEPS=30)
        assert stray.wait(timeout=5) == -signal.SIGKILL
        assert again.wait(lambda state: state.has_ended).status == "finished"
    finally:
        stray.kill()
        stray.wait()


def test_a_keeper_that_stands_still_is_not_lost_and_keeps_its_run(start: Starter) -> None:
    one = start()
    one.wait(lambda state: state.status == "running")
    keeper = one.supervisor()
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert read_state(one.run, now_s=time.time() + 86_400).status == "running"
        start(one.run, resume="auto", expect="run_is_active")
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert one.state().status == "running"


def test_a_state_that_is_written_over_is_written_again_and_never_an_end(start: Starter) -> None:
    one = start()
    one.wait_for_steps(3)
    for content in (b"", b"{half", b"\0" * 100, b"[]"):
        one.run.state_json.write_bytes(content)
        assert one.state().status == "running"
    start(one.run, resume="auto", expect="run_is_active")
    one.wait(lambda state: state.supervisor is not None, patience_s=10.0)
    one.run.state_json.unlink()
    assert one.state().status == "running"
    assert one.wait(lambda state: state.supervisor is not None, patience_s=10.0).mark == one.mark


def test_a_moved_folder_is_stopped_where_it_is_now_and_goes_on_there(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    moved = RunFolder(one.run.path.rename(one.run.path.with_name("moved")))
    assert wait_until_gone(one.mark, 10.0) == []
    # The keeper itself carries no mark and looks at the cards before it goes.
    deadline = time.monotonic() + 20.0
    while (state := read_state(moved)).status != "stopped" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state.status == "stopped"
    assert "the move of its folder to another place" in state.exit.message
    newest = newest_complete(moved)
    again = start(moved, resume="auto", STEPS=30)
    state = again.wait(lambda state: state.has_ended)
    assert (state.status, state.attempts[1].resume) == ("finished", newest.name)


@pytest.mark.all
def test_a_copy_goes_on_by_itself_beside_the_original(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    copy = RunFolder(one.run.path.with_name("copy"))
    shutil.copytree(one.run.path, copy.path)
    assert read_state(copy).status == "lost"
    again = start(copy, resume="auto", STEPS=30)
    # What the copy's state calls its processes are those of the original.
    assert one.state().status == "running"
    assert marked_pids(one.mark)
    assert again.wait(lambda state: state.has_ended).status == "finished"
    assert one.state().status == "running"


@pytest.mark.all
def test_a_guard_that_stands_still_does_not_hold_the_run_for_ever(start: Starter) -> None:
    """Suspended with the whole session, and only the keeper was killed: it keeps the lock and ends nothing."""
    one = start()
    one.wait_for_steps(12)
    (guard,) = (pid for pid in marked_pids(one.mark) if os.getpgid(pid) == pid and parent_of(pid) == one.supervisor())
    os.kill(guard, signal.SIGSTOP)
    os.kill(one.supervisor(), signal.SIGKILL)
    one.wait(lambda state: state.status == "lost", patience_s=5.0)
    again = start(one.run, resume="auto", STEPS=30)
    assert wait_until_gone(one.mark, 0.5) == []
    assert again.wait(lambda state: state.has_ended).status == "finished"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
