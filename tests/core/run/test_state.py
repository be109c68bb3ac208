"""state.json, the attempts and phases in it in words, and phase.json, also where the disk has no room for a new file."""

import errno
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from trainwiz.core.run import attempts as phase
from trainwiz.core.run.attempts import PhaseNow, attempt_words, cause_words, phase_words, read_phase, write_phase
from trainwiz.core.run.folder import RunFolder, write_atomic
from trainwiz.core.run.lost import ProcessId, this_process
from trainwiz.core.run.state import Attempt, RunExit, RunState, read_state, write_state

from tests.each import each


def run_in(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.run_yaml.write_text("name: x\n")
    return run


def test_a_state_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    state = RunState(
        status="stopped",
        name="x",
        max_steps=9,
        supervisor=ProcessId(4, 5.0, 6),
        workers=[ProcessId(7, 8.0, None)],
        attempts=[Attempt(1, 2.0, resume="checkpoint-3", set_aside=["a sentence"])],
        engine={"planned": "ddp", "actual": "single"},
        exit=RunExit(130, "user_stop", "Stopped.", "do this", ("line",)),
        notes=["note"],
    )
    write_state(run, state)
    assert read_state(run) == state


def test_wrong_types_count_as_absent(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    wrong = {key: ["wrong"] for key in RunState().to_json()} | {"exit": {"code": "x"}, "attempts": [1, {"number": 1}]}
    run.state_json.write_text(json.dumps(wrong))
    state = read_state(run)
    assert (state.status, state.supervisor, state.attempts, state.exit) == ("prepared", None, [], None)
    # And inside; newer keys of a known state are let be.
    attempt = {"number": 1, "started_s": 2, "ended_s": "x", "set_aside": 5, "resume": [1], "exit": 3, "log_offset": {}}
    exit_ = {"code": 1, "message": None, "remedy": 4, "evidence": 5}
    newer = {"schema_version": 2, "status": "failed", "colour": 5, "attempts": [attempt], "exit": exit_}
    run.state_json.write_text(json.dumps(newer))
    state = read_state(run)
    assert state.attempts == [Attempt(1, 2.0)]
    assert state.exit == RunExit(1, None, "")


def test_the_wall_clock_does_not_change_who_a_process_is() -> None:
    me = this_process()
    assert ProcessId(me.pid, me.create_time + 86_400, me.start_ticks).is_alive()
    assert not ProcessId(me.pid, me.create_time + 86_400, None).is_alive()


def test_a_reader_sees_the_old_file_or_the_new_one_never_half(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")
    with path.open() as reader:
        write_atomic(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


# Attempts and phases.


BATCH = {"micro_batch": 6, "accumulation": 8, "world_size": 1}
SMALLER = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}


@each(("attempt", "words"), [
    (Attempt(1, 0.0), ""),
    (Attempt(2, 0.0, resume="checkpoint-1200"), "attempt 2, from step 1,200"),
    (Attempt(2, 0.0, resume="kept"), "attempt 2, from kept"),
    (Attempt(2, 0.0, resume="checkpoint-5", because="cuda_oom", changes=SMALLER),
     "attempt 2, because GPU memory ran out; from step 5: 3 × 16 instead of 6 × 8"),
    (Attempt(3, 0.0, resume="checkpoint-5", because="dataloader_worker_killed", changes={"data.workers": 2}),
     "attempt 3, because a loader worker was killed; from step 5: data.workers = 2"),
    (Attempt(2, 0.0, because="cuda_oom", changes={"batch.eval_micro_batch_size": 4, "a.b": "\x1b[31mred"}),
     "attempt 2, because GPU memory ran out; from the beginning: batch.eval_micro_batch_size = 4; a.b = red"),
])  # fmt: skip
def test_an_attempt_says_why_it_is_and_how_it_differs(attempt: Attempt, words: str) -> None:
    assert attempt_words(attempt, BATCH) == words


def test_without_a_plan_what_was_planned_is_open() -> None:
    attempt = Attempt(2, 0.0, because="cuda_oom", changes=SMALLER)
    assert attempt_words(attempt, {}).endswith("3 × 16 instead of ? × ?")
    attempt.changes = {"batch.micro_batch_size": "\x1b[2Jthree"}
    assert attempt_words(attempt, BATCH).endswith("? × 8 instead of 6 × 8")
    # A cause that nobody foresaw has its own name.
    assert cause_words(Attempt(2, 0.0, because="solar_\x07flare")) == "solar flare"


def test_a_phase_says_what_and_since_when() -> None:
    assert phase_words(PhaseNow("paused", 0.0, 9, "no \x1b[31mroom"), "3 min") == "paused, for 3 min: no room"


def test_a_full_disk_does_not_hide_that_a_run_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    write_phase(run, "saving", 6, "a sentence that is longer than the one that takes its place")

    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(phase, "write_json_atomic", full)
    write_phase(run, "paused", 6, "waiting for disk space")
    found = read_phase(run)
    assert (found.phase, found.step, found.detail) == ("paused", 6, "waiting for disk space")
    run.file("phase.json").unlink()
    with pytest.raises(OSError):
        write_phase(run, "paused")
