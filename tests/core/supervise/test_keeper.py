"""The keeper with a stand-in training below the light launcher."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from trainwiz.core.launch.start import is_suspended, stop_run
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import identify
from trainwiz.core.run.state import Attempt, RunState, write_state
from trainwiz.core.supervise import keeper as keeper_module
from trainwiz.core.supervise.ending import ONE_REQUEST_S
from trainwiz.core.supervise.keeper import Keeper
from trainwiz.core.supervise.recovery import StartOrder

from tests.core.supervise.conftest import Starter, system_lines
from tests.fakes.marked import describe, marked_pids, wait_until_gone


def test_a_run_finishes_and_says_so(start: Starter) -> None:
    one = start(STEPS=30, STEP_S=0.05)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "finished"
    assert (state.exit.code, state.exit.cause) == (0, None)
    assert "30 steps" in state.exit.message
    assert "3.00 → 2.00" in state.exit.message
    assert state.engine["actual"] == "single"
    assert state.attempts[0].launcher_exit_code == 0
    assert wait_until_gone(one.mark, 2.0) == []
    assert "trains from 0" in one.run.train_log.read_text()


def test_it_is_seen_running_with_its_processes(start: Starter) -> None:
    one = start(EXTRA=1)
    state = one.wait(lambda state: state.status == "running" and bool(state.workers))
    assert state.supervisor.is_alive()
    # One training process and no loader or helper among the workers.
    assert len(state.workers) == 1
    one.wait(lambda state: any(len(line["processes"]) == 6 for line in system_lines(one.run)))
    line = system_lines(one.run)[-1]
    roles = sorted(row["role"] for row in line["processes"])
    assert roles == ["guard", "helper", "launcher", "loader", "supervisor", "trainer"]
    assert {row["pid"] for row in line["processes"]} == set(marked_pids(one.mark))
    assert line["host"]["ram_used_bytes"] > 0
    # What was summed up so far stands in every so many lines only.
    assert set(line) - {"so_far"} == {"time_s", "gpus", "host", "processes", "unavailable"}


def test_the_keeper_leaves_the_callers_session_and_its_folder(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("json", "psutil", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user stood in for a library')\n")
    one = start()
    keeper = one.supervisor()
    assert os.getsid(keeper) != os.getsid(0)
    assert Path(f"/proc/{keeper}/cwd").resolve() == Path("/")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_with_a_checkpoint(start: Starter, number: signal.Signals) -> None:
    one = start(**({"EXTRA": 1} if number == signal.SIGTERM else {}))
    one.wait_for_steps(13)
    os.kill(one.supervisor(), number)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped"
    assert (state.exit.code, state.exit.cause) == (130, "user_stop")
    newest = newest_complete(one.run)
    assert newest.name == f"checkpoint-{state.outcome['step']}" if state.outcome else False
    assert wait_until_gone(one.mark, 3.0) == [], describe(marked_pids(one.mark))


@pytest.mark.parametrize("victim", ["supervisor", "launcher"])
def test_sigkill_leaves_nothing_behind(start: Starter, victim: str) -> None:
    one = start(EXTRA=1)
    one.wait_for_steps(11)
    pid = one.supervisor() if victim == "supervisor" else one.launcher()
    assert len(marked_pids(one.mark)) == 6
    os.kill(pid, signal.SIGKILL)
    assert wait_until_gone(one.mark, 5.0) == [], describe(marked_pids(one.mark))
    state = one.state()
    assert state.status == ("lost" if victim == "supervisor" else "failed")
    assert "resume" in (state.exit.remedy or "")
    if victim == "launcher":
        assert "SIGKILL" in state.exit.message
    newest = newest_complete(one.run)
    assert int(newest.name.partition("-")[2]) >= 10


def test_the_guard_is_replaced_when_it_is_killed(start: Starter) -> None:
    one = start(EXTRA=1)
    one.wait_for_steps(3)
    one.wait(lambda state: one.run.system_jsonl.exists() and len(system_lines(one.run)) > 2)
    guard = next(row["pid"] for row in system_lines(one.run)[-1]["processes"] if row["role"] == "guard")
    os.kill(guard, signal.SIGKILL)
    time.sleep(1.0)
    os.kill(one.supervisor(), signal.SIGKILL)
    assert wait_until_gone(one.mark, 5.0) == [], describe(marked_pids(one.mark))


def test_two_who_ask_for_a_stop_at_once_get_their_checkpoint(start: Starter) -> None:
    one = start(STEP_S=1)
    one.wait_for_steps(1)
    # Neither has seen the other's request in state.json; a session that ends sends two kinds of signal.
    os.kill(one.supervisor(), signal.SIGTERM)
    time.sleep(0.3)
    os.kill(one.supervisor(), signal.SIGTERM)
    os.kill(one.supervisor(), signal.SIGHUP)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped" and state.outcome is not None
    newest = newest_complete(one.run)
    assert newest.name == f"checkpoint-{state.outcome['step']}"


def test_a_second_stop_signal_does_not_wait(start: Starter) -> None:
    one = start(IGNORE_STOP=1, EXTRA=1)
    one.wait_for_steps(3)
    os.kill(one.supervisor(), signal.SIGTERM)
    one.wait(lambda state: state.status == "stopping")
    time.sleep(ONE_REQUEST_S)
    asked = time.monotonic()
    os.kill(one.supervisor(), signal.SIGTERM)
    state = one.wait(lambda state: state.has_ended)
    assert time.monotonic() - asked < 3.0
    assert state.status == "stopped"
    assert wait_until_gone(one.mark, 3.0) == []


def test_a_training_that_does_not_stop_is_killed_after_its_grace(start: Starter) -> None:
    run = start.folder()
    document = json.loads(run.state_json.read_text())
    run.state_json.write_text(json.dumps({**document, "grace_s": 1.5}))
    one = start(run, IGNORE_STOP=1)
    one.wait_for_steps(11)
    state = stop_run(run)
    assert state.status == "stopped"
    assert "was killed" in state.exit.message
    assert f"{newest_complete(run).name} is the newest" in state.exit.message
    assert wait_until_gone(one.mark, 3.0) == []


def test_stopping_before_the_training_began(start: Starter) -> None:
    one = start(command=[sys.executable, "-c", "import time; time.sleep(600)", "."])
    state = stop_run(one.run)
    assert state.status == "stopped"
    assert "before the training began" in state.exit.message
    assert wait_until_gone(one.mark, 3.0) == []


def test_a_training_that_still_reads_its_rows_is_not_waited_for(start: Starter) -> None:
    one = start(PREPARE_S=600)
    one.wait(lambda state: one.run.train_log.exists() and b"prepares" in one.run.train_log.read_bytes())
    asked = time.monotonic()
    os.kill(one.supervisor(), signal.SIGTERM)
    state = one.wait(lambda state: state.has_ended, 30.0)
    # The grace of a training that could save something is 20 s.
    assert time.monotonic() - asked < 15.0
    assert state.status == "stopped" and state.exit is not None
    assert "before the training began" in state.exit.message
    assert wait_until_gone(one.mark, 3.0) == []


def test_a_failure_is_one_sentence_with_its_step(start: Starter) -> None:
    one = start(FAIL_AT=7)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed"
    assert (state.exit.code, state.exit.cause) == (1, "cuda_oom")
    assert "after step 7" in state.exit.message
    assert "Traceback" not in state.exit.message
    assert "--micro-batch" in (state.exit.remedy or "")


def test_a_second_start_is_refused(start: Starter) -> None:
    one = start()
    one.wait(lambda state: state.status == "running")
    second = start(one.run, expect="run_is_active")
    third = start(one.run, resume="auto", expect="run_is_active")
    assert wait_until_gone(second.mark, 3.0) == wait_until_gone(third.mark, 3.0) == []
    assert one.state().status == "running"
    assert len(one.state().attempts) == 1


@pytest.mark.all
def test_two_starts_in_the_same_moment_leave_one_run(start: Starter) -> None:
    run = start.folder()
    code = (
        "import sys, uuid; from pathlib import Path; from trainwiz.core.launch.start import start_keeper;"
        "from trainwiz.core.supervise.recovery import StartOrder; from trainwiz.core.run.folder import RunFolder;"
        "print(start_keeper(RunFolder(Path(sys.argv[1])), StartOrder([sys.executable, '-c', 'import time; time.sleep(60)'], sys.argv[2])))"
    )
    marks = ["race-a-" + str(os.getpid()), "race-b-" + str(os.getpid())]
    commands = [[sys.executable, "-c", code, str(run.path), mark] for mark in marks]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=30)[0] for process in both]
    try:
        assert sorted("'ok': True" in text for text in said) == [False, True], said
        assert sum("run_is_active" in text for text in said) == 1
        loser = marks[next(number for number, text in enumerate(said) if "run_is_active" in text)]
        assert wait_until_gone(loser, 3.0) == []
        assert sum(bool(marked_pids(mark)) for mark in marks) == 1
    finally:
        assert stop_run(run, now=True).status == "stopped"


def test_it_goes_on_from_the_newest_complete_checkpoint(start: Starter) -> None:
    one = start()
    one.wait_for_steps(25)
    os.kill(one.supervisor(), signal.SIGKILL)
    broken = one.run.path / "checkpoint-9999"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0half")
    newest = newest_complete(one.run)
    # Refused without --resume, and only then started again at once: the guard still clears up.
    again = start(one.run, resume="auto", STEPS=60)
    state = again.wait(lambda state: state.has_ended)
    assert state.status == "finished"
    assert [attempt.status for attempt in state.attempts] == ["lost", "finished"]
    assert state.attempts[1].resume == newest.name
    assert "broken-checkpoint-9999" in state.attempts[1].set_aside[0]
    assert (one.run.path / "broken-checkpoint-9999" / "model.safetensors").exists()
    log = one.run.train_log.read_text()
    assert f"attempt 2, {time.strftime('%Y-')}" in log
    assert f"trains from {newest.name.partition('-')[2]}" in log
    assert (one.run.path / "attempts" / "1" / "engine.json").exists()
    start(one.run, resume="auto", expect="run_is_active")
    start(one.run, expect="run_is_active")


def test_a_tied_run_ends_with_its_command(start: Starter) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    one = start(owner=identify(owner.pid))
    one.wait_for_steps(3)
    owner.kill()
    owner.wait()
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "stopped"
    assert "the end of the command" in state.exit.message
    assert newest_complete(one.run) is not None
    assert wait_until_gone(one.mark, 3.0) == []


@pytest.mark.all
def test_the_keeper_is_light(start: Starter) -> None:
    one = start(STEP_S=0.5)
    one.wait(lambda state: state.status == "running")
    pid = one.supervisor()
    tick = os.sysconf("SC_CLK_TCK")

    def cpu_s() -> float:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    time.sleep(1.0)
    before, began = cpu_s(), time.monotonic()
    time.sleep(4.0)
    share = (cpu_s() - before) / (time.monotonic() - began)
    with open(f"/proc/{pid}/status") as file:
        resident_kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    # Two samples a second here, one in a real run.
    assert share < 0.02, f"{share:.2%} of a core"
    assert resident_kib < 60 * 1024, f"{resident_kib / 1024:.0f} MiB"
    libraries = Path(f"/proc/{pid}/maps").read_text()
    assert "libtorch" not in libraries
    assert "pydantic_core" not in libraries


FULL_DISK = """
import sys, time
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
state = one.wait(lambda state: state.has_ended, 40)
print(state.status, state.exit.cause, wait_until_gone(one.mark, 5))
"""


def test_a_disk_that_fills_up_does_not_end_the_keeper_without_a_word(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no private mounts")
    mount = f'mount -t tmpfs -o size=1500k tmpfs {tmp_path} && exec "{sys.executable}" -c "$0" {tmp_path}'
    root = Path(__file__).resolve().parents[3]
    found = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, FULL_DISK], capture_output=True, text=True, cwd=root, check=False
    )
    assert found.stdout.strip() == "failed disk_full []", found.stdout + found.stderr


class Bare:
    """A keeper in this process, whose run has begun and has ended, and that can kill nothing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeper_module, "kill_marked", lambda *arguments, **more: [12, 13])
        run = RunFolder(folder)
        write_state(run, RunState(status="running"))
        self.keeper = Keeper(run, StartOrder(["launch"], "no such mark"), RunState(status="running"))
        monkeypatch.setattr(self.keeper, "_watch", lambda: None)
        monkeypatch.setattr(keeper_module, "become_subreaper", lambda: None)
        monkeypatch.setattr(keeper_module, "Guard", lambda mark: SimpleNamespace(pid=0, dismiss=lambda: None))
        monkeypatch.setattr(keeper_module, "spawn_launcher", lambda *_: SimpleNamespace(pid=os.getpid()))


def test_processes_that_hang_are_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Bare(tmp_path, monkeypatch)
    for _ in range(3):
        bare.keeper._kill()
    assert bare.keeper.state.notes == ["These processes would not end: 12, 13."]


def test_a_failure_of_the_system_after_the_start_is_not_called_one_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    bare = Bare(tmp_path, monkeypatch)
    bare.keeper.state.attempts = [Attempt(1, time.time())]
    monkeypatch.setattr(keeper_module, "how_it_ended", refused)
    bare.keeper.keep()
    state = bare.keeper.state
    assert state.exit is not None and state.status == "failed"
    assert "The keeper of the run failed" in state.exit.message and "Too many open files" in state.exit.message


def test_a_suspended_keeper_is_continued_so_that_it_can_stop(start: Starter) -> None:
    one = start(STEPS=10_000, STEP_S=0.05)
    state = one.wait(lambda state: state.status == "running")
    os.kill(state.supervisor.pid, signal.SIGSTOP)
    while not is_suspended(state.supervisor):
        time.sleep(0.01)
    assert stop_run(one.run, now=True, wait_s=20.0).status == "stopped"
    assert wait_until_gone(one.mark, 2.0) == []


def test_threads_that_the_system_refuses_end_no_run(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWIZ_TEST_NO_THREADS", "recorder watch")
    one = start(STEPS=10, STEP_S=0.05)
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "finished"
    assert len([note for note in state.notes if "limit on processes" in note]) == 2


def test_a_command_that_does_not_exist_is_a_sentence(start: Starter) -> None:
    one = start(command=["/nowhere/accelerate", "launch"])
    state = one.wait(lambda state: state.has_ended)
    assert state.status == "failed"
    assert state.exit is not None
    assert "could not be started" in state.exit.message
    assert wait_until_gone(one.mark, 2.0) == []


def test_an_incomplete_checkpoint_by_name_is_refused(start: Starter) -> None:
    one = start(STEPS=12)
    one.wait(lambda state: state.has_ended)
    (one.run.path / "outcome.json").unlink()
    document = json.loads(one.run.state_json.read_text())
    one.run.state_json.write_text(json.dumps({**document, "status": "stopped"}))
    (one.run.path / "checkpoint-12" / "optimizer.pt").write_bytes(b"PK")
    start(one.run, resume="checkpoint-12", expect="cannot_resume")
    start(one.run, resume="checkpoint-77", expect="cannot_resume")
    assert (one.run.path / "checkpoint-12").exists()
    older = start(one.run, resume="checkpoint-10", STEPS=15)
    state = older.wait(lambda state: state.has_ended)
    assert state.attempts[-1].resume == "checkpoint-10"
    assert (one.run.path / "broken-checkpoint-12").exists()


def test_what_is_promised_of_now_is_done_where_the_keeper_does_nothing(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start(STEPS=10_000, STEP_S=0.05)
    state = one.wait(lambda state: state.status == "running")
    assert state.supervisor is not None
    os.kill(state.supervisor.pid, signal.SIGSTOP)
    monkeypatch.setattr("trainwiz.core.launch.start.FORCE_AFTER_S", 0.5)
    # As if something suspended it again and again.
    monkeypatch.setattr("trainwiz.core.launch.start.is_suspended", lambda process: False)
    assert not stop_run(one.run, now=True, wait_s=20.0).is_active
    assert wait_until_gone(one.mark, 10.0) == []
