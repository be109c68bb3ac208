"""One sentence for each state in which a run cannot be started, gone on with or removed; what is removed; comparing."""

import os
import platform
import shutil
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.files import bytes_below
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import read_run_config, start_run
from trainwiz.core.run.attempts import Recovery, why_not_start, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import compare_runs, find_run, remove_run
from trainwiz.core.run.lost import RunLock, machine_identity, this_process
from trainwiz.core.run.state import RunState, RunStatus, read_state, write_state

from tests.core.launch.plans import small_plan
from tests.each import each


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return prepare_run(small_plan(), tmp_path / "one")


def stand(run: RunFolder, status: RunStatus, host: str | None = None) -> RunState:
    """The run as it stands in this state, kept by this process."""
    state = read_state(run)
    state.status, state.host, state.heartbeat_s = status, host or platform.node(), time.time()
    state.machine, state.supervisor = (machine_identity() if host is None else f"{host} boot pid:[1]"), this_process()
    write_state(run, state)
    return read_state(run)


GO_ON = "trainwiz runs resume {path}"
RUNNING = "one is already running. Monitor it with: trainwiz monitor {path}"
WHY_NOT: list[tuple[RunStatus, str | None, bool, str | None]] = [
    ("starting", None, True, RUNNING),
    ("running", None, True, RUNNING),
    ("running", None, False, RUNNING),
    ("running", "far", True, "one is already running on far. Monitor it with: trainwiz monitor {path}"),
    *(("prepared", None, resume, None) for resume in (True, False)),
    ("stopping", None, True, f"one is stopping. When it has ended, resume it with: {GO_ON}"),
    ("finished", None, True, "one has finished; there is nothing to resume."),
    *((status, None, True, None) for status in ("failed", "stopped", "lost")),
    *(
        (s, None, False, f"one was started before ({s}). Resume it with: {GO_ON}")
        for s in ("failed", "stopped", "lost")
    ),
]
"""State, host, whether it is resumed -> the sentence."""


@each(("status", "host", "resume", "said"), WHY_NOT)
def test_why_not_start(tmp_path: Path, status: RunStatus, host: str | None, resume: bool, said: str | None) -> None:
    run = prepare_run(small_plan(), tmp_path / "one")
    expected = None if said is None else said.format(path=run.path)
    assert why_not_start(run, stand(run, status, host), resume=resume) == expected


def test_a_state_of_a_newer_trainwiz_is_not_written_over(run: RunFolder) -> None:
    state = stand(run, "failed")
    before = run.state_json.read_text().replace('"schema_version": 1', '"schema_version": 2')
    run.state_json.write_text(before)
    said = why_not_start(run, state, resume=True) or ""
    assert "newer trainwiz (file version 2" in said
    assert said.endswith("Update trainwiz to resume one.")
    with pytest.raises(UsageError, match="newer trainwiz"):
        start_run(run, resume="auto")
    assert run.state_json.read_text() == before
    assert not (run.path / "supervisor.log").exists(), "no process was started"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_not_called_no_run(run: RunFolder, tmp_path: Path) -> None:
    run.path.chmod(0)
    try:
        for text, root in (("one", tmp_path), (str(run.path), tmp_path / "nowhere")):
            with pytest.raises(UsageError, match=r"Cannot read .*: Permission denied"):
                find_run(text, root)
    finally:
        run.path.chmod(0o755)


# What is removed, and what differs.


def test_a_run_goes_and_what_it_links_to_stays(run: RunFolder, tmp_path: Path) -> None:
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


def test_an_active_run_or_the_place_of_work_is_not_removed(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    state = stand(run, "running")
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


def test_a_run_that_cannot_all_go_stays_whole(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_run_that_is_started_while_the_removal_waits_stays(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
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
    # What recovery made of a run counts, beside what was planned.
    micro = read_run_config(one).batch.micro_batch_size
    write_recoveries(one, [Recovery(2, "cuda_oom", 5, 1.0, {"batch.micro_batch_size": 1})])
    document = compare_runs([one, two])
    assert document["settings"].pop("batch.micro_batch_size") == [1, micro]
    assert document["settings"] == {"training.learning_rate": [1e-3, 2e-3], "checkpoint.keep": [2, 5]}
    assert document["planned"]["batch.micro_batch_size"] == [micro, micro]
    assert document["results"]["attempts"] == [0, 0]
    with pytest.raises(UsageError, match="Specify two or more runs"):
        compare_runs([one])
    two.run_yaml.write_text("a: [")
    with pytest.raises(UsageError, match="line 1, column 5: not valid YAML"):
        compare_runs([one, two])
