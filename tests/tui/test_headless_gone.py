"""A followed run whose folder is removed: the follower says so and ends, instead of waiting for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainwiz.core.errors import EXIT_TRAINING_FAILED
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, write_state
from trainwiz.tui.headless.follow import follow
from trainwiz.tui.headless.signals import StopSignals


class Said:
    """A reporter that keeps the ending and removes the folder at the first look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ending: object = None

    def note(self, sentence: str) -> None:
        pass

    def progress(self, progress: object) -> None:
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
