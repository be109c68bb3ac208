from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.ending import Facts, how_it_ended


@pytest.mark.parametrize(
    ("exit_code", "asked_by", "status"),
    [(0, None, "finished"), (-15, "you", "finished"), (-15, None, "failed")],
)
def test_a_stop_after_the_last_word_of_the_training_takes_nothing_back(
    tmp_path: Path, exit_code: int, asked_by: str | None, status: str
) -> None:
    run = RunFolder(tmp_path)
    run.file("outcome.json").write_text(json.dumps({"outcome": "finished", "step": 9, "max_steps": 9}))
    facts = Facts(exit_code, asked_by, 1.0 if asked_by else None, False, False, True, 0, 0)
    assert how_it_ended(run, facts).status == status


def test_an_interrupt_from_outside_before_a_process_listened_is_a_stop_and_says_so(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.train_log.write_text("failed (exitcode: -2) local_rank: 1 (pid: 28593) of binary: /usr/bin/python\n")
    ended = how_it_ended(run, Facts(1, None, None, False, False, False, 0, 0))
    exit_ = ended.exit
    assert (ended.status, exit_.code, exit_.cause) == ("stopped", 130, "user_stop")
    assert exit_.message.startswith("Stopped by a signal from outside trainwiz before the training began.")


def test_an_interrupt_to_the_launcher_ends_the_training_with_it_and_may_be_tried_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.train_log.write_text("step 7/16  loss 3.1\nTraceback (most recent call last):\n  x\nKeyboardInterrupt\n")
    ended = how_it_ended(run, Facts(-2, None, None, False, False, True, 0, 0))
    assert (ended.status, ended.exit.cause, ended.killed_by) == ("failed", "unknown", "SIGINT")
    assert "The launcher was ended from outside by SIGINT" in ended.exit.message
