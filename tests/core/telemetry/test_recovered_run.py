"""What a viewer tells of attempts, of what recovery changed, and of the phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.replay import ReplaySource
from trainwiz.core.telemetry.run_source import RunSource
from trainwiz.core.telemetry.snapshot import Snapshot

from tests.core.telemetry.written_run import NOW_S, write_run
from tests.each import each

SMALLER = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 1302}
FIRST = {"number": 1, "started_s": NOW_S - 900, "ended_s": NOW_S - 600, "status": "failed"}
SECOND = {"number": 2, "started_s": NOW_S - 600, "resume": "checkpoint-5", "because": "cuda_oom", "changes": SMALLER}


def look(folder: Path) -> Snapshot:
    return RunSource(RunFolder(folder), clock=lambda: NOW_S).read_all()


def factors(snapshot: Snapshot) -> tuple[int | None, ...]:
    planned = snapshot.planned
    return planned.micro_batch, planned.accumulation, planned.world_size


def phase(**values: Any) -> dict[str, Any]:
    return {"phase": "evaluating", "since_s": NOW_S - 40, "step": 5, "detail": "", **values}


def test_the_batch_is_that_of_the_attempt_that_runs(tmp_path: Path) -> None:
    assert factors(look(write_run(tmp_path / "first", attempts=[FIRST]))) == (6, 651, 1)
    snapshot = look(write_run(tmp_path / "second", attempts=[FIRST, SECOND]))
    assert factors(snapshot) == (3, 1302, 1)
    assert snapshot.planned.effective_samples == 3906
    document = snapshot.to_json()
    assert [attempt["because"] for attempt in document["attempts"]] == [None, "cuda_oom"]
    assert document["attempts"][1]["changes"] == SMALLER
    assert document["planned"]["micro_batch"] == 3


def test_a_resume_by_hand_keeps_what_recovery_changed_and_nothing_comes_before_its_time(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", attempts=[FIRST])
    write_recoveries(RunFolder(folder), [Recovery(2, "cuda_oom", 5, NOW_S, SMALLER)])
    assert factors(look(folder)) == (6, 651, 1)
    by_hand = {"number": 3, "started_s": NOW_S - 60, "resume": "checkpoint-9"}
    write_run(folder, attempts=[FIRST, SECOND, by_hand])
    snapshot = look(folder)
    assert factors(snapshot) == (3, 1302, 1)
    assert snapshot.attempt_words == "attempt 3, from step 9: 3 × 1,302 instead of 6 × 651"


@each(
    ("said", "shown"),
    [
        (phase(), "evaluating"),
        (phase(since_s=NOW_S - 700), None),
        (phase(since_s=NOW_S + 60), None),
        (phase(phase="dancing"), None),
        (phase(since_s="now"), None),
    ],
)
def test_a_phase_is_that_of_this_attempt_and_moment(tmp_path: Path, said: dict[str, Any], shown: str | None) -> None:
    snapshot = look(write_run(tmp_path / "run", attempts=[FIRST, SECOND], phase=said))
    assert (snapshot.phase.phase if snapshot.phase else None) == shown
    assert (snapshot.to_json()["phase"] or {}).get("phase") == shown


def test_an_ended_run_has_no_phase_and_says_why_it_was_not_started_again(tmp_path: Path) -> None:
    last = {**SECOND, "ended_s": NOW_S, "status": "failed", "not_retried": "It cannot be smaller."}
    failed = {"code": 1, "cause": "cuda_oom", "message": "Out of memory."}
    folder = write_run(tmp_path / "run", status="failed", exit_=failed, attempts=[FIRST, last], phase=phase())
    snapshot = look(folder)
    assert snapshot.phase is None
    assert snapshot.not_retried == "It cannot be smaller."


def test_a_replay_shows_the_batch_of_the_moment(tmp_path: Path) -> None:
    finished = {"status": "finished", "steps": 10, "log_every": 1, "step_s": 60.0, "max_steps": 10}
    folder = write_run(tmp_path / "run", attempts=[FIRST, {**SECOND, "ended_s": NOW_S}], **finished)
    write_recoveries(RunFolder(folder), [Recovery(2, "cuda_oom", 5, NOW_S - 600, SMALLER)])
    now = 0.0
    source = ReplaySource(RunFolder(folder), 1.0, clock=lambda: now)
    assert factors(source.poll()) == (6, 651, 1)
    now = 10_000.0
    assert factors(source.poll()) == (3, 1302, 1)
