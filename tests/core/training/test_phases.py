"""phase.json: what the training does, as it goes along."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.run.attempts import PhaseNow, read_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.process import Phases


def now(folder: Path) -> PhaseNow:
    found = read_phase(RunFolder(folder))
    assert found is not None
    return found


def test_a_phase_inside_another_gives_it_back(tmp_path: Path) -> None:
    phases = Phases()
    phases.begin(RunFolder(tmp_path))
    phases.enter("training", 7)
    with phases.during("evaluating", 8), phases.during("generating"):
        assert (now(tmp_path).phase, now(tmp_path).step) == ("generating", 8)
    assert (now(tmp_path).phase, now(tmp_path).step) == ("training", 8)


def test_how_far_it_has_come_is_no_new_phase(tmp_path: Path) -> None:
    phases = Phases()
    phases.begin(RunFolder(tmp_path))
    phases.enter("tokenising")
    since_s = now(tmp_path).since_s
    time.sleep(0.05)
    phases.tell("12 of 80 rows")
    phases.tell("13 of 80 rows")
    assert now(tmp_path) == PhaseNow("tokenising", since_s, None, "12 of 80 rows"), "not at every call"


def test_only_rank_0_speaks_but_for_work_of_whoever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    phases = Phases()
    phases.begin(RunFolder(tmp_path))
    phases.enter("tokenising")
    phases.tell("mine")
    assert read_phase(RunFolder(tmp_path)) is None
    phases.tell("12 of 80 rows", whoever=True)
    assert now(tmp_path).detail == "12 of 80 rows"


def test_signals_are_heard_and_threads_told_to_wait_before_torch_is_loaded() -> None:
    """Importing it takes seconds, in which a stop was lost; its OpenMP reads how to wait once."""
    code = (
        "import sys, importlib; [importlib.import_module(name) for name in sys.argv[1:]]; print('torch' in sys.modules)"
    )
    names = ["trainwiz.core.training.__main__", "trainwiz.core.training.probe"]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_full_disk_or_no_run_is_no_failure(tmp_path: Path) -> None:
    phases = Phases()
    with phases.during("tokenising"):
        phases.tell("outside of a run", whoever=True)
    phases.begin(RunFolder(tmp_path / "gone"))
    phases.enter("saving", 3)
