"""How the following of a run ends: where its folder is removed, and where its keeper takes a moment to leave."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from trainwiz.core.errors import EXIT_TRAINING_FAILED
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import identify
from trainwiz.core.run.state import RunState, write_state
from trainwiz.tui.headless.run import StopSignals, follow


class Said:
    """A reporter that keeps the ending, and removes the folder at the first look."""

    def __init__(self, folder: Path, *, removes: bool = True) -> None:
        self.folder = folder
        self.removes = removes
        self.ending: object = None

    def note(self, sentence: str) -> None:
        pass

    def progress(self, progress: object) -> None:
        if self.removes:
            shutil.rmtree(self.folder)

    def end(self, ending: object) -> None:
        self.ending = ending


def test_a_removed_folder_ends_the_following(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "r")
    run.path.mkdir()
    write_state(run, RunState(status="prepared"))
    said = Said(run.path)
    assert follow(run, said, StopSignals()) == EXIT_TRAINING_FAILED  # type: ignore[arg-type]
    assert "is gone" in said.ending.message and said.ending.status == "lost"  # type: ignore[attr-defined]


def test_the_keeper_of_a_run_that_has_ended_has_left_too(tmp_path: Path) -> None:
    """Its last word is written before it has ended: the next command may remove the folder, or go on in it."""
    run = RunFolder(tmp_path / "r")
    run.path.mkdir()
    with subprocess.Popen(["sleep", "1"]) as keeper:
        write_state(run, RunState(status="finished", supervisor=identify(keeper.pid)))
        assert follow(run, Said(run.path, removes=False), StopSignals()) == 0  # type: ignore[arg-type]
        assert identify(keeper.pid) is None
