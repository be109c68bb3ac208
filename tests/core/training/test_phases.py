"""phase.json: what the training does, as it goes along."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from trainwiz.core.run.attempts import PhaseNow, read_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.phases import Phases

from tests.core.training.runs import start, write_run
from tests.core.training.text_runs import text_config


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


def test_a_full_disk_or_no_run_is_no_failure(tmp_path: Path) -> None:
    phases = Phases()
    with phases.during("tokenising"):
        phases.tell("outside of a run", whoever=True)
    phases.begin(RunFolder(tmp_path / "gone"))
    phases.enter("saving", 3)


@pytest.mark.real
def test_a_real_run_says_all_of_them(tmp_path: Path) -> None:
    config = text_config(
        "t5-chat-tiny",
        data__validation_rows=20,
        evaluation__every_steps=2,
        evaluation__generate=True,
        evaluation__generate_at="evaluation",
        evaluation__generation_length=24,
        checkpoint__every_steps=2,
    )
    folder = write_run(tmp_path / "run", config)
    process, seen = start(folder, config), []
    while process.poll() is None:
        found = read_phase(RunFolder(folder))
        if found is not None and (not seen or seen[-1] != found.phase):
            seen.append(found.phase)
        time.sleep(0.002)
    assert process.returncode == 0, (folder / "train.log").read_text()[-3000:]
    assert seen[0] == "preparing" and seen[-1] == "finishing"
    assert {"loading", "tokenising", "training", "evaluating", "generating", "saving"} <= set(seen)
    assert now(folder).step == config.training.max_steps
