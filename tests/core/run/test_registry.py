"""The list of runs wherever they lie."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from trainwiz.core.run import listing as registry
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import record_run, recorded_runs, registry_path


def run_at(path: Path) -> RunFolder:
    path.mkdir(parents=True)
    (path / "run.yaml").write_text("model: {}\n")
    return RunFolder(path)


def test_the_run_that_was_started_last_comes_first_and_once(tmp_path: Path) -> None:
    first, second = run_at(tmp_path / "a"), run_at(tmp_path / "b")
    for run in (first, second, first):
        record_run(run)
    assert recorded_runs() == [first, second]
    first.run_yaml.unlink()
    assert recorded_runs() == [second], "what is gone is left out"


def test_a_relative_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_at(tmp_path / "runs" / "x")
    monkeypatch.chdir(tmp_path)
    record_run(RunFolder(Path("runs/x")))
    monkeypatch.chdir("/")
    assert recorded_runs() == [RunFolder(tmp_path / "runs" / "x")]


def test_broken_lines_are_left_out(tmp_path: Path) -> None:
    run = run_at(tmp_path / "a")
    path = registry_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b'{"path": 3}\nnot json\n[]\n{"path": "relative"}\n{"path": "/\\u0000"}\n\xff\xfe\n{"path": "/half'
    )
    record_run(run)
    assert recorded_runs() == [run]


def test_a_name_that_is_no_text_is_recorded_too(tmp_path: Path) -> None:
    run = run_at(tmp_path / "bad\udcff")
    record_run(run)
    assert recorded_runs() == [run]


def test_it_stays_short_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_LINES", 20)
    monkeypatch.setattr(registry, "KEPT_RUNS", 5)
    runs = [run_at(tmp_path / str(number)) for number in range(12)]
    for _ in range(3):
        for run in runs:
            record_run(run)
    assert len(registry_path().read_text().splitlines()) <= 21
    assert recorded_runs()[:5] == runs[:-6:-1]
    assert not list(registry_path().parent.glob(".*"))


def test_starts_at_the_same_moment_are_all_recorded(tmp_path: Path) -> None:
    runs = [run_at(tmp_path / str(number)) for number in range(20)]
    threads = [threading.Thread(target=record_run, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.path for run in recorded_runs()} == {run.path for run in runs}
    for line in registry_path().read_text().splitlines():
        assert json.loads(line)["path"]


def test_a_folder_that_cannot_be_written_does_not_hinder_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    record_run(run_at(tmp_path / "a"))
    assert recorded_runs() == []
