"""phase.json, also where the disk has no room for a new file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from trainwiz.core.run import attempts as phase
from trainwiz.core.run.attempts import read_phase, write_phase
from trainwiz.core.run.folder import RunFolder


def test_a_full_disk_does_not_hide_that_a_run_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    write_phase(run, "saving", 6, "a sentence that is longer than the one that takes its place")

    def full(path: Path, document: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(phase, "write_json_atomic", full)
    write_phase(run, "paused", 6, "waiting for room on the disk")
    found = read_phase(run)
    assert found is not None and (found.phase, found.step, found.detail) == (
        "paused",
        6,
        "waiting for room on the disk",
    )


def test_another_failure_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, document: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(phase, "write_json_atomic", denied)
    with pytest.raises(PermissionError):
        write_phase(RunFolder(tmp_path), "paused")
