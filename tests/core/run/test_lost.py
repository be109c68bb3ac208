"""The rule for `lost`: a test for each row of the table in docs/runs.md, in its order."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run import lost as lock_module
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import (
    ProcessId,
    RunLock,
    identify,
    lock_seen,
    look_at_lock,
    machine_identity,
    this_process,
    why_lost,
)
from trainwiz.core.run.state import ENDED, RunState, read_state, write_state

from tests.each import each

NOW = 1_795_344_000.0
HERE = "node boot-2 pid:[1]"
KEEPER = ProcessId(4321, NOW - 3600, 99)


def running(**changes: object) -> RunState:
    """A run of this machine whose keeper wrote a heartbeat a second ago."""
    state = RunState(status="running", host="node", machine=HERE, supervisor=KEEPER, heartbeat_s=NOW - 1)
    return replace(state, **changes)  # type: ignore[arg-type]


ELSEWHERE = "other boot-9 pid:[1]"
OTHER = "node boot-2 pid:[7]"
BEFORE = {"machine": "node boot-1 pid:[1]", "heartbeat_s": NOW - 30}
NEW_BOOT = {"boot_s": NOW - 10, "written_s": NOW - 30}
RULE: list[tuple[dict[str, object], dict[str, object], str | None]] = [
    # Only an active run can be lost.
    *(({"status": status}, {}, None) for status in ("prepared", *sorted(ENDED))),
    # Where the process is seen no clock counts.
    *(({"heartbeat_s": time_s}, {"alive": True}, None) for time_s in (NOW - 1e6, NOW + 1e6, None)),
    *(({"heartbeat_s": time_s}, {"written_s": NOW}, "no_process") for time_s in (NOW - 1e6, NOW + 1e6, None)),
    # After a restart nobody waits, in a container too, whose process numbers are others each time.
    (BEFORE, {"alive": True, **NEW_BOOT}, "restarted"),
    ({**BEFORE, "machine": "node boot-1 pid:[7]"}, {"alive": True, **NEW_BOOT}, "restarted"),
    # Another computer of the same name is no restart, nor is a folder whose lock is still held.
    (BEFORE, {"boot_s": NOW - 3600}, None),
    ({**BEFORE, "machine": "other boot-1 pid:[1]"}, {"boot_s": NOW - 10}, None),
    (BEFORE, {"lock": "held", "boot_s": NOW - 10}, None),
    # A lock that is held is a sign of life; a wrong clock elsewhere does not make a run lost.
    ({"machine": ELSEWHERE, "heartbeat_s": NOW - 1e6}, {"lock": "held"}, None),
    ({"machine": ELSEWHERE, "heartbeat_s": NOW - 900}, {"written_s": NOW - 2}, None),
    ({"machine": ELSEWHERE, "heartbeat_s": NOW - 900}, {"written_s": NOW + 30}, None),
    ({"machine": ELSEWHERE, "heartbeat_s": NOW + 900}, {"lock": "unknown"}, None),
    ({"machine": ELSEWHERE, "heartbeat_s": NOW + 900}, {"lock": "free"}, "silent"),
    # Another container of this computer, or a system without boot ids.
    *(({"machine": machine, "heartbeat_s": NOW - 61}, {"alive": True}, "silent") for machine in (OTHER, "mac", "")),
    ({"machine": OTHER, "heartbeat_s": NOW - 59}, {}, None),
    ({"machine": OTHER, "heartbeat_s": None}, {"written_s": None}, "silent"),
    # A copy has no keeper; elsewhere the same path may be another folder.
    ({"folder": "/runs/original"}, {"alive": True, "elsewhere": True}, "copied"),
    ({"folder": "/runs/original"}, {"alive": True}, None),
    ({"folder": "/runs/original", "machine": ELSEWHERE}, {"alive": True, "elsewhere": True}, None),
]
"""What the state says, what is seen, why it is lost."""


@each(("said", "seen", "why"), RULE)
def test_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, object], seen: dict[str, Any], why: str | None
) -> None:
    """Where nothing else is said the lock is free, and nothing was heard of the run for two hours."""
    run, written_s = RunFolder(tmp_path), seen.get("written_s", NOW - 7200)
    if written_s is not None:
        run.state_json.touch()
        os.utime(run.state_json, (written_s, written_s))
    monkeypatch.setattr(lock_module, "machine_identity", lambda: HERE)
    monkeypatch.setattr(lock_module, "look_at_lock", lambda folder: seen.get("lock", "free"))
    monkeypatch.setattr(lock_module, "boot_time_s", lambda: seen.get("boot_s", NOW - 7200))
    monkeypatch.setattr(lock_module, "_is_elsewhere", lambda recorded, run: seen.get("elsewhere", False))
    monkeypatch.setattr(ProcessId, "is_alive", lambda process: seen.get("alive", False))
    assert why_lost(run, running(**said), NOW) == why


# The same with what is really there.


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "one")
    folder.path.mkdir()
    folder.run_yaml.write_text("name: x\n")
    return folder


def keeper_of(run: RunFolder, process: ProcessId | None, heartbeat_s: float | None = None) -> None:
    """Write the state that a keeper with this number would write now."""
    state = RunState(status="running", machine=machine_identity(), supervisor=process, folder=str(run.path.resolve()))
    write_state(run, replace(state, heartbeat_s=time.time() if heartbeat_s is None else heartbeat_s))


def test_a_keeper_that_has_ended_and_a_number_that_is_used_again_are_lost_at_once(run: RunFolder) -> None:
    child = subprocess.Popen(["sleep", "600"])
    keeper_of(run, identify(child.pid), heartbeat_s=time.time() - 9999)
    assert read_state(run).status == "running"
    child.kill()
    # Before its parent has waited for it, too.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert read_state(run).status == "lost"
    child.wait()
    me = this_process()
    keeper_of(run, replace(me, start_ticks=(me.start_ticks or 0) - 1, create_time=me.create_time - 100))
    assert read_state(run).status == "lost"


def test_a_copy_has_no_keeper_and_a_link_is_none(run: RunFolder, tmp_path: Path) -> None:
    keeper_of(run, this_process())
    copy, link = RunFolder(tmp_path / "copy"), RunFolder(tmp_path / "link")
    shutil.copytree(run.path, copy.path)
    state = read_state(copy)
    assert state.status == "lost" and str(run.path) in state.exit.message
    link.path.symlink_to(run.path)
    assert read_state(link).status == "running"


def test_the_lock_is_seen_and_left_as_it_is(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_at_lock(run.path) == "unknown"
    lock = RunLock.take(run.path)
    assert look_at_lock(run.path) == "held"
    assert lock_seen(run, lock) == "free"
    lock.release()
    assert look_at_lock(run.path) == "free"
    (run.path / ".lock").unlink()
    os.mkfifo(run.path / ".lock")
    assert look_at_lock(run.path) in ("free", "unknown")
    assert look_at_lock(run.path / "nowhere") == "unknown"

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock_module.fcntl, "flock", no_locks)
    assert look_at_lock(run.path) == "unknown"
    again = RunLock.take(run.path)
    assert lock_seen(run, again) == "unknown"
    again.release()


def test_whoever_holds_the_lock_does_not_take_it_for_the_keepers(run: RunFolder) -> None:
    state = RunState(status="running", machine="elsewhere boot pid:[1]", heartbeat_s=time.time() - 3600)
    write_state(run, state)
    os.utime(run.state_json, (1, 1))
    lock = RunLock.take(run.path)
    assert read_state(run).status == "running"
    assert read_state(run, lock=lock).status == "lost"
    lock.release()


BROKEN = [
    (b"", "not JSON"),
    # As after a power cut.
    (b"\0" * 4096, "not JSON"),
    (b'{"status": "running", "na', "not JSON"),
    (b"[1, 2]", "it contains no state"),
    (b'{"name": "x"}', "it contains no state"),
    (b'{"schema_version": 9, "status": "dreaming"}', "newer trainwiz"),
    (b"[" * 100_000, "not JSON"),
]


@each(("content", "reason"), BROKEN)
def test_a_state_that_cannot_be_used(tmp_path: Path, content: bytes, reason: str) -> None:
    run = RunFolder(tmp_path / "one")
    run.path.mkdir()
    run.run_yaml.write_text("name: x\n")
    run.state_json.write_bytes(content)
    run.plan_json.write_text(json.dumps({"profile": "p", "task": "t", "model": {"name": "m"}, "time": {"steps": 9}}))
    state = read_state(run)
    assert state.status == "prepared"
    assert reason in state.notes[0]
    run.train_log.write_text("it ran")
    state = read_state(run)
    assert (state.status, state.name, state.profile, state.model, state.max_steps) == ("lost", "one", "p", "m", 9)
    assert reason in state.exit.message
    assert "runs resume" in (state.exit.remedy or "")
    # Neither a folder nor a pipe in its place is waited for.
    run.state_json.unlink()
    for make in (os.mkdir, os.mkfifo):
        make(run.state_json)
        assert read_state(run).status == "lost"
        run.state_json.rmdir() if run.state_json.is_dir() else run.state_json.unlink()
    run.state_json.write_bytes(content)
    # Its keeper writes it again within seconds: no viewer may take that for the end.
    lock = RunLock.take(run.path)
    assert read_state(run).status == "running"
    assert read_state(run, lock=lock).status == "lost"
    lock.release()
