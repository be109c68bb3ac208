"""The keeper with a stand-in training below the light launcher (its start, ends, kills, returns), and the lifeline alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.history.measurement import device_key, load
from trainwiz.core.history.run import PLANNED
from trainwiz.core.launch.start import stop_run
from trainwiz.core.run.attempts import read_recoveries
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RUN_MARK_VARIABLE, RunFolder, write_json_atomic
from trainwiz.core.run.lost import HEARTBEAT_LOST_S, identify
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.ending import ONE_REQUEST_S
from trainwiz.core.supervise.ties import KEEPER_VARIABLE, hold_to_parent, keeper_value

from tests.core.history.measurements import measurement
from tests.core.supervise.conftest import Starter, assert_gone, system_lines, until
from tests.core.supervise.test_recovery import SETUP
from tests.fakes.marked import marked_pids, wait_until_gone
from tools.benchmarks.process_cost import OwnProcesses, memory_of

MOST_BYTES = 60_000_000


def planned_here(start: Starter) -> RunFolder:
    """A run whose plan was made for this machine, so that what it measures is remembered."""
    run = start.folder()
    key = device_key(probe_machine(), "cpu")
    write_json_atomic(run.plan_json, {PLANNED: measurement(machine=key).to_json()})
    return run


def test_a_run_finishes_says_so_and_joins_the_history(start: Starter) -> None:
    one = start(planned_here(start), STEPS=8, SAID_STEP_S=0.25)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "finished"
    assert (state.exit.code, state.exit.cause) == (0, None)
    assert "8 steps" in state.exit.message and "3.00 → 2.00" in state.exit.message
    assert state.engine["actual"] == "single"
    assert state.attempts[0].launcher_exit_code == 0
    assert "trains from 0" in one.run.train_log.read_text()
    until(lambda: load(probe_machine()))
    (found,) = load(probe_machine())
    assert (found.source, found.step_s, found.steps, found.tokens_per_step) == ("run", 0.25, 7, 100.0)
    assert_gone(one.mark)


def test_a_failure_is_one_sentence_with_its_step_and_no_measurement(start: Starter) -> None:
    one = start(planned_here(start), FAIL_AT=7, FAIL_WITH="the rows are wrong", setup=SETUP, SAID_STEP_S=0.25)
    state = one.wait(lambda state: state.has_ended)
    assert (state.status, state.exit.code, state.exit.cause) == ("failed", 1, "python_error")
    assert "after step 7" in state.exit.message and "Traceback" not in state.exit.message
    # An error of the code is not repeated.
    assert len(state.attempts) == 1 and read_recoveries(one.run) == []
    assert "fail in the same way" in (state.attempts[0].not_retried or "")
    assert load(probe_machine()) == ()


def test_a_run_is_kept_from_its_start_to_a_stop(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("json", "psutil", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user stood in for a library')\n")
    one = start(EXTRA=1)
    state = one.wait(lambda state: state.status == "running" and bool(state.workers))
    keeper = one.supervisor()
    # It has left the caller's session and folder.
    assert state.supervisor.is_alive() and os.getsid(keeper) != os.getsid(0)
    assert Path(f"/proc/{keeper}/cwd").resolve() == Path("/")
    # One training process and no loader or helper among the workers.
    assert len(state.workers) == 1
    until(lambda: any(len(line["processes"]) == 6 for line in system_lines(one.run)))
    line = system_lines(one.run)[-1]
    roles = sorted(row["role"] for row in line["processes"])
    assert roles == ["guard", "helper", "launcher", "loader", "supervisor", "trainer"]
    assert {row["pid"] for row in line["processes"]} == set(marked_pids(one.mark))
    assert line["host"]["ram_used_bytes"] > 0
    # What was summed up so far stands in every so many lines only.
    assert set(line) - {"so_far"} == {"time_s", "gpus", "host", "processes", "unavailable"}
    # Keeper and guard weigh less than they may.
    pids = OwnProcesses(one.mark, one.launcher()).now()
    assert len(pids) == 2 and keeper in pids and memory_of(pids).rss < MOST_BYTES
    # A second start is refused, also while the keeper stands still, which is no loss.
    refused = [start(one.run, expect="run_is_active")]
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert read_state(one.run, now_s=time.time() + 86_400).status == "running"
        refused.append(start(one.run, resume="auto", expect="run_is_active"))
    finally:
        os.kill(keeper, signal.SIGCONT)
    for other in refused:
        assert_gone(other.mark)
    # A state that is written over is written again, and is never an end.
    for content in (b"", b"{half", b"\0" * 100, b"[]"):
        one.run.state_json.write_bytes(content)
        assert one.state().status == "running"
    start(one.run, resume="auto", expect="run_is_active")
    one.wait(lambda state: state.supervisor is not None)
    one.run.state_json.unlink()
    assert one.state().status == "running"
    state = one.wait(lambda state: state.supervisor is not None)
    assert (state.mark, len(state.attempts)) == (one.mark, 1)
    # A stop ends it with a checkpoint.
    one.wait_for_steps(13)
    os.kill(keeper, signal.SIGTERM)
    state = one.wait(lambda state: state.has_ended)
    assert (state.status, state.exit.code, state.exit.cause) == ("stopped", 130, "user_stop")
    assert newest_complete(one.run).name == f"checkpoint-{state.outcome['step']}"
    assert_gone(one.mark)


def test_killed_it_is_lost_at_once_and_goes_on_from_the_newest_complete_checkpoint(start: Starter) -> None:
    one = start(EXTRA=1)
    one.wait_for_steps(12)
    # A guard that is killed is replaced.
    guard = one.guard()
    os.kill(guard, signal.SIGKILL)
    until(lambda: len(marked_pids(one.mark)) == 6 and one.guard() not in (None, guard))
    os.kill(one.supervisor(), signal.SIGKILL)
    began = time.monotonic()
    lost = one.wait(lambda state: state.status == "lost")
    assert time.monotonic() - began < HEARTBEAT_LOST_S / 3
    assert "resume" in (lost.exit.remedy or "")
    broken = one.run.path / "checkpoint-9999"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0half")
    for name in ("checkpoint-9999", "checkpoint-77"):
        start(one.run, resume=name, expect="cannot_resume")
    assert broken.exists()
    newest = newest_complete(one.run)
    assert int(newest.name.partition("-")[2]) >= 10
    again = start(one.run, resume="auto", STEPS=60)
    assert_gone(one.mark)
    state = again.wait(lambda state: state.has_ended)
    assert [attempt.status for attempt in state.attempts] == ["lost", "finished"]
    first, second = state.attempts
    # How long the lost attempt lasted is known from its last heartbeat.
    assert first.started_s <= first.ended_s <= second.started_s
    assert second.resume == newest.name and "broken-checkpoint-9999" in second.set_aside[0]
    assert (one.run.path / "broken-checkpoint-9999" / "model.safetensors").exists()
    log = one.run.train_log.read_text()
    assert f"attempt 2, {time.strftime('%Y-')}" in log
    assert f"trains from {newest.name.partition('-')[2]}" in log
    assert (one.run.path / "attempts" / "1" / "engine.json").exists()
    # What has finished is not started again.
    start(one.run, resume="auto", expect="run_is_active")
    start(one.run, expect="run_is_active")


def test_what_keeper_and_guard_could_not_end_is_ended_before_the_next_attempt(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    # A helper of the training that holds to nobody: without parent, in a session of its own.
    code = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"
    environment = {**os.environ, RUN_MARK_VARIABLE: one.mark}
    stray = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    everybody = [pid for pid in marked_pids(one.mark) if pid != stray.pid]
    try:
        # Keeper and guard stand still first: neither may see the end of the other.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everybody:
                os.kill(pid, number)
        one.wait(lambda state: state.status == "lost")
        assert stray.poll() is None
        again = start(one.run, resume="auto", STEPS=30)
        assert stray.wait(timeout=30) == -signal.SIGKILL
        assert again.wait(lambda state: state.has_ended).status == "finished"
    finally:
        stray.kill()
        stray.wait()


def test_a_moved_folder_ends_its_run_and_goes_on_where_it_is_now(start: Starter) -> None:
    one = start()
    one.wait_for_steps(12)
    moved = RunFolder(one.run.path.rename(one.run.path.with_name("moved")))
    # Another run of somebody's in its place is not touched.
    one.run.path.mkdir()
    one.run.state_json.write_text('{"status": "finished"}')
    assert_gone(one.mark)
    assert read_state(moved).status == "lost"
    assert [path.name for path in one.run.path.iterdir()] == ["state.json"]
    assert one.run.state_json.read_text() == '{"status": "finished"}'
    newest = newest_complete(moved)
    again = start(moved, resume="auto", STEPS=30)
    state = again.wait(lambda state: state.has_ended)
    assert (state.status, state.attempts[1].resume) == ("finished", newest.name)


def test_a_tied_run_ends_with_its_command(start: Starter) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    one = start(owner=identify(owner.pid))
    one.wait_for_steps(3)
    owner.kill()
    owner.wait()
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped" and "the exit of the command" in state.exit.message
    assert newest_complete(one.run) is not None
    assert_gone(one.mark)


def test_requests_of_one_moment_are_one_and_reach_every_rank(start: Starter) -> None:
    one = start(STEP_S=1, WORLD_SIZE=2)
    one.wait_for_steps(1)
    one.wait(lambda state: len(state.workers) == 2)
    # Neither has seen the other's request in state.json; a session that ends sends two kinds of signal.
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
        os.kill(one.supervisor(), number)
        time.sleep(0.2)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped" and "SIGHUP" in state.exit.message
    assert newest_complete(one.run).name == f"checkpoint-{state.outcome['step']}"
    log = one.run.train_log.read_text()
    assert "rank 0 stops" in log and "rank 1 stops" in log


def test_a_second_stop_signal_does_not_wait(start: Starter) -> None:
    one = start(IGNORE_STOP=1, EXTRA=1)
    one.wait_for_steps(3)
    os.kill(one.supervisor(), signal.SIGTERM)
    one.wait(lambda state: state.status == "stopping")
    time.sleep(ONE_REQUEST_S)
    os.kill(one.supervisor(), signal.SIGTERM)
    # Its grace is 600 s.
    assert "immediately, without a checkpoint" in one.wait(lambda state: state.has_ended).exit.message
    assert one.state().status == "stopped"
    assert_gone(one.mark)


def test_a_training_that_does_not_stop_is_killed_after_its_grace(start: Starter) -> None:
    one = start(start.folder(grace_s=1.5), IGNORE_STOP=1)
    one.wait_for_steps(11)
    state = stop_run(one.run)
    assert state.status == "stopped" and "was killed" in state.exit.message
    assert f"{newest_complete(one.run).name} is the newest" in state.exit.message
    assert_gone(one.mark)


def test_a_training_that_has_not_begun_is_not_waited_for(start: Starter) -> None:
    one = start(PREPARE_S=600)
    until(lambda: one.run.train_log.exists() and b"prepares" in one.run.train_log.read_bytes())
    os.kill(one.supervisor(), signal.SIGTERM)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped" and "before the training began" in state.exit.message
    assert state.ended_s - state.attempts[0].started_s < 300, "its grace is 600 s"
    assert_gone(one.mark)


def test_a_child_without_the_mark_is_ended_too(start: Starter, tmp_path: Path) -> None:
    """A program that was started with an environment of its own, and in a session of its own."""
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True);"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    one = start(command=[sys.executable, "-c", code])
    until(lambda: pid_file.exists() and pid_file.read_text())
    state = stop_run(one.run)
    assert state.status == "stopped" and "before the training began" in state.exit.message
    assert state.stop["verified"]["processes_left"] == []
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_keeper_that_does_nothing_is_ended_with_its_run(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start()
    state = one.wait(lambda state: state.status == "running")
    os.kill(state.supervisor.pid, signal.SIGSTOP)
    monkeypatch.setattr("trainwiz.core.launch.start.FORCE_AFTER_S", 0.5)
    assert not stop_run(one.run, now=True).is_active
    assert_gone(one.mark)


def test_a_command_that_does_not_exist_is_a_sentence(start: Starter) -> None:
    one = start(command=["/nowhere/accelerate", "launch"])
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed" and "could not be started" in state.exit.message
    assert_gone(one.mark)


FULL_DISK = """
import sys
from pathlib import Path
from tests.core.supervise.conftest import Starter
from tests.fakes.marked import wait_until_gone
one = Starter(Path(sys.argv[1]))(STEP_S=0.01)
one.wait_for_steps(5)
with open(sys.argv[1] + "/big", "wb", 0) as file:
    try:
        while True:
            file.write(b"0" * 4096)
    except OSError:
        pass
state = one.wait(lambda state: state.has_ended)
print(state.status, state.exit.cause, wait_until_gone(one.mark, 30))
"""


def test_a_disk_that_fills_up_does_not_end_the_keeper_without_a_word(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no private mounts")
    mount = f'mount -t tmpfs -o size=1500k tmpfs {tmp_path} && exec "{sys.executable}" -c "$0" {tmp_path}'
    command = ["unshare", "-rm", "sh", "-c", mount, FULL_DISK]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert found.stdout.strip() == "failed disk_full []", found.stdout + found.stderr


LOADED = """
import sys
import trainwiz.core.supervise.__main__
import trainwiz.core.telemetry.machine
import trainwiz.core.history.run
print(*{name.partition(".")[0] for name in sys.modules})
"""
"""All that a keeper loads from its start to its end."""
HEAVY = {"pydantic", "yaml", "torch", "numpy", "transformers", "accelerate", "datasets", "textual", "rich", "typer"}


def test_it_loads_no_configuration_and_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()


# The lifeline alone, without keeper or guard: who dies when whom is killed.


TRAINER = """
import multiprocessing, time
from trainwiz.core.supervise.ties import hold_to_parent
held = hold_to_parent()
multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True).start()
print("held" if held else "free", flush=True)
time.sleep(600)
"""
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("victim", ["launcher", "keeper"])
def test_trainer_and_its_loader_end_with_the_launcher_and_with_the_keeper(victim: str) -> None:
    """A stand-in keeper, a launcher and a trainer that holds to both."""
    mark, keeper = uuid.uuid4().hex, subprocess.Popen(["sleep", "600"])
    identity = identify(keeper.pid)
    assert identity is not None
    marks = {RUN_MARK_VARIABLE: mark, KEEPER_VARIABLE: keeper_value(identity)}
    command = [sys.executable, "-c", LAUNCHER, TRAINER]
    with subprocess.Popen(command, env={**os.environ, **marks}, stdout=subprocess.PIPE, text=True) as launcher:
        try:
            assert launcher.stdout.readline() == "held\n"
            assert len(marked_pids(mark)) == 3
            (launcher if victim == "launcher" else keeper).kill()
            launcher.wait(timeout=600)
            assert wait_until_gone(mark, 30.0) == []
        finally:
            for process in (keeper, launcher):
                process.kill()
                process.wait()
            for pid in marked_pids(mark):
                os.kill(pid, signal.SIGKILL)


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
