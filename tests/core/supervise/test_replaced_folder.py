"""A run folder that is moved away while its run goes on, and another put in its place: the other one is not touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.run.lost import identify

LOOK_S = 0.05


def until(holds: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(LOOK_S)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def state_of(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "state.json").read_text()))


@pytest.mark.real
def test_a_folder_that_was_moved_away(tmp_path: Path) -> None:
    run, moved, other = tmp_path / "run", tmp_path / "moved", tmp_path / "other"
    words = ["--profile", "cpu-demo", "--max-steps", "4000", "--yes", "--plain", "--set", "checkpoint.every_steps=5"]
    command = [sys.executable, "-m", "trainwiz.tui.cli", *words, "--detach", "--output-dir", "run"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") > 3)
    # Another run of somebody's, finished, with a model.
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("*.tmp", "checkpoint-*", "partial*", ".*"))
    (other / "state.json").write_text(json.dumps({**state_of(run), "status": "finished", "heartbeat_s": 0}))
    (other / "outcome.json").write_text('{"outcome": "finished", "step": 7}')
    run.rename(moved)
    other.rename(run)
    before = contents(run)
    pid = state_of(moved)["supervisor"]["pid"]  # type: ignore[index]
    until(lambda: identify(pid) is None)
    state = state_of(moved)
    assert state["status"] == "stopped", state
    assert "the move of its folder to another place" in str(state["exit"]), state["exit"]
    assert not (moved / "final_model").exists()
    assert contents(run) == before
