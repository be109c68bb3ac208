from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.files import bytes_below
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import read_run_config
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import compare_runs, remove_run
from trainwiz.core.run.lost import RunLock, machine_identity, this_process
from trainwiz.core.run.state import read_state, write_state

from tests.core.launch.plans import small_plan


def test_a_run_goes_and_what_it_links_to_stays(tmp_path: Path) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("me")
    (run.path / "link").symlink_to(outside)
    assert bytes_below(run.path, on_disk=True) > 4096
    remove_run(run)
    assert not run.path.exists()
    assert (outside / "keep").read_text() == "me"


def test_only_runs_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter").write_text("x")
    (folder / "run.yaml").write_text("name: mine\n")
    run = prepare_run(small_plan(), tmp_path / "one")
    link = tmp_path / "link"
    link.symlink_to(run.path)
    with pytest.raises(UsageError, match=f"is a link.* runs remove {run.path}"):
        remove_run(RunFolder(link))
    for path in (folder, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="is not a trainwiz run"):
            remove_run(RunFolder(path))
    assert (folder / "chapter").exists()
    assert run.is_run()


def test_an_active_run_or_the_place_of_work_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    state = read_state(run)
    state.status, state.supervisor, state.machine = "running", this_process(), machine_identity()
    state.heartbeat_s = time.time()
    write_state(run, state)
    with pytest.raises(UsageError, match=f"runs stop {run.path}"):
        remove_run(run)
    state.status = "finished"
    write_state(run, state)
    lock = RunLock.take(run.path)
    with pytest.raises(UsageError, match="try again"):
        remove_run(run)
    lock.release()
    monkeypatch.chdir(run.path)
    with pytest.raises(UsageError, match="the current folder"):
        remove_run(run)
    assert run.is_run()


def test_a_run_that_cannot_go_whole_stays_whole_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    seen: list[list[str]] = []

    def refuse(path: Path) -> None:
        seen.append([entry.name for entry in tmp_path.iterdir()])
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(CannotRunError, match="could not be removed completely: Permission denied"):
        remove_run(run)
    # While it goes, no list finds half of it.
    assert seen == [[".one.removing"]]
    assert run.is_run()
    assert [entry.name for entry in tmp_path.iterdir()] == ["one"]


def test_a_run_that_is_started_while_the_removal_waits_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    take = RunLock.take

    def take_late(folder: Path, wait_s: float = 0.0) -> RunLock | None:
        # Its keeper is elsewhere, on a file system whose locks are not shared.
        state = read_state(run)
        state.status, state.machine, state.heartbeat_s = "running", "elsewhere boot pid:[1]", time.time()
        write_state(run, state)
        return take(folder, wait_s)

    monkeypatch.setattr(RunLock, "take", take_late)
    with pytest.raises(UsageError, match="stop it first"):
        remove_run(run)
    assert run.is_run()


def test_comparing_shows_only_what_differs(tmp_path: Path) -> None:
    one = prepare_run(small_plan(training__learning_rate=1e-3), tmp_path / "one")
    two = prepare_run(small_plan(training__learning_rate=2e-3, checkpoint__keep=5), tmp_path / "two")
    document = compare_runs([one, two])
    assert document["runs"] == ["one", "two"]
    assert document["settings"] == {"training.learning_rate": [1e-3, 2e-3], "checkpoint.keep": [2, 5]}
    assert document["results"]["status"] == ["prepared", "prepared"]
    # What recovery made of a run counts, beside what was planned.
    micro = read_run_config(one).batch.micro_batch_size
    write_recoveries(one, [Recovery(2, "cuda_oom", 5, 1.0, {"batch.micro_batch_size": 1})])
    document = compare_runs([one, two])
    assert document["settings"]["batch.micro_batch_size"] == [1, micro]
    assert document["planned"]["batch.micro_batch_size"] == [micro, micro]
    assert document["results"]["attempts"] == [0, 0]
    with pytest.raises(UsageError, match="Specify two or more runs"):
        compare_runs([one])
    two.run_yaml.write_text("a: [")
    with pytest.raises(UsageError, match="cannot be read as YAML"):
        compare_runs([one, two])
