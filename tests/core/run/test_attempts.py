"""Attempts and phases in words; phase.json, also where the disk has no room for a new file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from trainwiz.core.run import attempts as phase
from trainwiz.core.run.attempts import PhaseNow, attempt_words, cause_words, phase_words, read_phase, write_phase
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt

from tests.each import each

BATCH = {"micro_batch": 6, "accumulation": 8, "world_size": 1}
SMALLER = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}


@each(
    ("attempt", "words"),
    [
        (Attempt(1, 0.0), ""),
        (Attempt(2, 0.0, resume="checkpoint-1200"), "attempt 2, from step 1,200"),
        (Attempt(2, 0.0, resume="kept"), "attempt 2, from kept"),
        (
            Attempt(2, 0.0, resume="checkpoint-5", because="cuda_oom", changes=SMALLER),
            "attempt 2, because GPU memory ran out; from step 5: 3 × 16 instead of 6 × 8",
        ),
        (
            Attempt(3, 0.0, resume="checkpoint-5", because="dataloader_worker_killed", changes={"data.workers": 2}),
            "attempt 3, because a loader worker was killed; from step 5: loader workers: 2",
        ),
        (
            Attempt(2, 0.0, because="cuda_oom", changes={"batch.eval_micro_batch_size": 4, "a.b": "\x1b[31mred"}),
            "attempt 2, because GPU memory ran out; from the beginning: evaluation batch of 4; a.b = red",
        ),
    ],
)
def test_an_attempt_says_why_it_is_and_how_it_differs(attempt: Attempt, words: str) -> None:
    assert attempt_words(attempt, BATCH) == words


def test_without_a_plan_what_was_planned_is_open() -> None:
    attempt = Attempt(2, 0.0, because="cuda_oom", changes=SMALLER)
    assert attempt_words(attempt, {}).endswith("3 × 16 instead of ? × ?")
    attempt.changes = {"batch.micro_batch_size": "\x1b[2Jthree"}
    assert attempt_words(attempt, BATCH).endswith("? × 8 instead of 6 × 8")
    # A cause that nobody foresaw has its own name.
    assert cause_words(Attempt(2, 0.0, because="solar_\x07flare")) == "solar flare"


@each(
    ("now", "lasted", "words"),
    [
        (PhaseNow("tokenising", 0.0, 0, "12 of 80 rows"), "3 min", "tokenizing 12 of 80 rows, for 3 min"),
        (PhaseNow("paused", 0.0, 9, "no \x1b[31mroom"), "3 min", "paused, for 3 min: no room"),
    ],
)
def test_a_phase_says_what_and_since_when(now: PhaseNow, lasted: str, words: str) -> None:
    assert phase_words(now, lasted) == words


def test_a_full_disk_does_not_hide_that_a_run_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    write_phase(run, "saving", 6, "a sentence that is longer than the one that takes its place")

    def full(path: Path, document: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(phase, "write_json_atomic", full)
    write_phase(run, "paused", 6, "waiting for disk space")
    found = read_phase(run)
    assert (found.phase, found.step, found.detail) == ("paused", 6, "waiting for disk space")

    def denied(path: Path, document: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(phase, "write_json_atomic", denied)
    with pytest.raises(PermissionError):
        write_phase(run, "paused")
