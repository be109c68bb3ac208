"""One sentence for each state in which a run cannot be started or gone on with."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run
from trainwiz.core.run.attempts import why_not_start
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import find_run
from trainwiz.core.run.lost import RunLock, machine_identity, this_process
from trainwiz.core.run.state import RunState, RunStatus, read_state, write_state

from tests.core.launch.plans import small_plan
from tests.each import each

ACTIVE = ("starting", "running")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return prepare_run(small_plan(), tmp_path / "one")


def stand(run: RunFolder, status: RunStatus, host: str | None = None) -> RunState:
    """The run as it stands in this state, kept by this process."""
    state = read_state(run)
    state.status, state.host, state.heartbeat_s = status, host or platform.node(), time.time()
    state.machine, state.supervisor = (machine_identity() if host is None else f"{host} boot pid:[1]"), this_process()
    write_state(run, state)
    return read_state(run)


GO_ON = "trainwiz runs resume {path}"
WHY_NOT: list[tuple[RunStatus, str | None, bool, str | None]] = [
    *(
        (status, None, True, "one is already running. Monitor it with: trainwiz monitor {path}")
        for status in ACTIVE[:2]
    ),
    ("running", None, False, "one is already running. Monitor it with: trainwiz monitor {path}"),
    ("running", "far", True, "one is already running on far. Monitor it with: trainwiz monitor {path}"),
    *(("prepared", None, resume, None) for resume in (True, False)),
    ("stopping", None, True, f"one is stopping. When it has ended, resume it with: {GO_ON}"),
    ("finished", None, True, "one has finished; there is nothing to resume."),
    *((status, None, True, None) for status in ("failed", "stopped", "lost")),
    *(
        (s, None, False, f"one was started before ({s}). Resume it with: {GO_ON}")
        for s in ("failed", "stopped", "lost")
    ),
]
"""State, host, whether it is resumed -> the sentence."""


@each(("status", "host", "resume", "said"), WHY_NOT)
def test_each_state_has_its_sentence(
    tmp_path: Path, status: RunStatus, host: str | None, resume: bool, said: str | None
) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    expected = None if said is None else said.format(path=run.path)
    assert why_not_start(run, stand(run, status, host), resume=resume) == expected


def test_who_clears_up_holds_the_lock(run: RunFolder) -> None:
    state = stand(run, "failed")
    lock = RunLock.take(run.path)
    assert "try again in a few seconds" in (why_not_start(run, state, resume=True) or "")
    assert why_not_start(run, state, resume=True, lock_is_mine=True) is None
    lock.release()


def test_a_state_of_a_newer_trainwiz_is_not_written_over(run: RunFolder) -> None:
    state = stand(run, "failed")
    before = run.state_json.read_text().replace('"schema_version": 1', '"schema_version": 2')
    run.state_json.write_text(before)
    said = why_not_start(run, state, resume=True) or ""
    assert "newer trainwiz (file version 2" in said
    assert said.endswith("Update trainwiz to resume one.")
    with pytest.raises(UsageError, match="newer trainwiz"):
        start_run(run, resume="auto")
    assert run.state_json.read_text() == before
    assert not (run.path / "supervisor.log").exists(), "no process was started"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(run: RunFolder) -> None:
    stand(run, "failed")
    run.path.chmod(0o555)
    try:
        with pytest.raises(CannotRunError, match="could not be started: Permission denied"):
            start_run(run, resume="auto")
    finally:
        run.path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_not_called_no_run(run: RunFolder, tmp_path: Path) -> None:
    run.path.chmod(0)
    try:
        for text, root in (("one", tmp_path), (str(run.path), tmp_path / "nowhere")):
            with pytest.raises(UsageError, match=r"Cannot read .*: Permission denied"):
                find_run(text, root)
    finally:
        run.path.chmod(0o755)
