"""stop_run: whom the signal reaches, and whom not."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError
from trainwiz.core.launch.start import stop_run, wait_for_end
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import ProcessId, identify, machine_identity
from trainwiz.core.run.state import RunState, write_state

NOBODY = 65534


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[bytes]]:
    """Something that ends on a signal, in the place of a keeper."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def run_kept_by(keeper: ProcessId | None, folder: Path, **values: object) -> RunFolder:
    run = RunFolder(folder)
    state = RunState(status="running", name=folder.name, heartbeat_s=time.time(), supervisor=keeper)
    state.machine = machine_identity()
    for name, value in values.items():
        setattr(state, name, value)
    write_state(run, state)
    return run


def test_a_stop_is_asked_once_and_an_end_at_once_always(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    asked = {"requested_s": time.time(), "reason": "you", "now": False}
    run = run_kept_by(identify(keeper.pid), tmp_path, status="stopping", stop=asked)
    assert stop_run(run, wait_s=0.0).status == "stopping"
    assert keeper.poll() is None
    stop_run(run, now=True, wait_s=0.0)
    assert keeper.wait(5) == -signal.SIGUSR1


def test_a_process_that_only_has_the_number_is_not_hit(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    now = identify(keeper.pid)
    assert now is not None
    before = ProcessId(keeper.pid, now.create_time - 60.0, None if now.start_ticks is None else now.start_ticks - 6000)
    assert stop_run(run_kept_by(before, tmp_path), now=True, wait_s=0.0).status == "lost"
    time.sleep(0.2)
    assert keeper.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_run_of_another_user_is_refused_in_a_sentence(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    run = run_kept_by(identify(keeper.pid), tmp_path)
    said: multiprocessing.SimpleQueue[str] = multiprocessing.get_context("fork").SimpleQueue()

    def as_another_user() -> None:
        # Opened before: other users may not look into root's folders.
        os.chdir(tmp_path)
        os.setuid(NOBODY)
        try:
            stop_run(RunFolder(Path()), wait_s=0.0)
            said.put("stopped")
        except CannotRunError as error:
            said.put(str(error))

    tmp_path.chmod(0o755)
    run.state_json.chmod(0o644)
    child = multiprocessing.get_context("fork").Process(target=as_another_user)
    child.start()
    child.join(20)
    assert said.get().endswith("belongs to another user; only that user can stop it.")
    assert keeper.poll() is None


def test_a_run_on_another_machine_is_stopped_there(tmp_path: Path) -> None:
    run = run_kept_by(ProcessId(1, 0.0), tmp_path, machine="another", host="gpu-box")
    with pytest.raises(CannotRunError, match="runs on gpu-box; stop it there: trainwiz runs stop"):
        stop_run(run)


def test_a_wait_that_is_over_returns_what_is_there(keeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    run = run_kept_by(identify(keeper.pid), tmp_path)
    began = time.monotonic()
    assert wait_for_end(run, wait_s=0.3).status == "running"
    assert 0.2 < time.monotonic() - began < 3.0
