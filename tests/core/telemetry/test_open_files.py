"""Open files of real processes: by path, by kind, through a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from trainwiz.core.telemetry.processes import OpenFile, is_written, open_files, written_through

from tests.core.telemetry.foreign_jobs import started, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")


def by_name(pid: int) -> dict[str, OpenFile]:
    return {file.name: file for file in open_files(pid) or ()}


def test_files_and_how_they_were_opened(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("x")
    with (
        (tmp_path / "read").open() as read,
        (tmp_path / "written").open("w") as written,
        Path("/dev/null").open() as null,
    ):
        files = by_name(os.getpid())
        assert files[str(tmp_path / "read")].kind == "file"
        assert not is_written(os.getpid(), read.fileno())
        assert is_written(os.getpid(), written.fileno())
        assert {file.kind for file in files.values() if file.descriptor == null.fileno()} <= {"null"}


def test_a_deleted_file_is_left_out(tmp_path: Path) -> None:
    with (tmp_path / "gone").open("w"):
        (tmp_path / "gone").unlink()
        assert not any("gone" in name for name in by_name(os.getpid()))


def test_the_file_behind_tee_is_found(tmp_path: Path) -> None:
    with started(["bash", "-c", "sleep 600 | tee log.txt > /dev/null"], tmp_path) as shell:
        sleeper = int(
            str(wait_for(lambda: Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()[:1]))[2:-2]
        )
        pipe = wait_for(
            lambda: [file.name for file in open_files(sleeper) or () if file.descriptor == 1 and file.kind == "pipe"]
        )
        assert isinstance(pipe, list)
        wait_for(lambda: written_through(pipe[0]) == [tmp_path / "log.txt"])
