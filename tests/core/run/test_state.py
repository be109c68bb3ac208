from __future__ import annotations

import json
import threading
from pathlib import Path

from trainwiz.core.run.folder import RunFolder, write_atomic
from trainwiz.core.run.lost import ProcessId, RunLock, this_process
from trainwiz.core.run.state import Attempt, RunExit, RunState, read_state, write_state


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


def test_the_lock_is_for_one(tmp_path: Path) -> None:
    first = RunLock.take(tmp_path)
    assert RunLock.take(tmp_path) is None
    threading.Timer(0.2, first.release).start()
    second = RunLock.take(tmp_path, wait_s=20)
    second.release()


def test_a_reader_sees_the_old_file_or_the_new_one_never_half(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")
    with path.open() as reader:
        write_atomic(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]
