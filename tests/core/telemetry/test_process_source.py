"""A real Trainer under a real accelerate launch, watched by its processes and by its folder until it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainwiz.core.telemetry.discovery import default_target, find_target, list_targets
from trainwiz.core.telemetry.job_source import ProcessSource
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_source

from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
    pytest.mark.timeout(180),
]
LAUNCH = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--main_process_port", "0"]
STEPS = 100_000


def look(source: Source) -> Snapshot:
    return source.read_all(("loss",))


def with_steps(source: Source, more_than: int = 0) -> Snapshot:
    """The first look that shows more steps than that."""

    def snapshot() -> Snapshot | None:
        found = look(source)
        return found if found.step is not None and found.step > more_than else None

    found = wait_for(snapshot)
    assert isinstance(found, Snapshot)
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scripts(tmp_path_factory.mktemp("job") / "work")


@pytest.fixture(scope="module")
def launched(work: Path) -> Iterator[subprocess.Popen[bytes]]:
    """accelerate launch, one trainer, two loader workers, event files."""
    words = [
        *LAUNCH,
        "train_tiny.py",
        "--output_dir",
        "out",
        "--max_steps",
        str(STEPS),
        "--hub_token",
        "hf_abcdefghijkl",
    ]
    with started(python(*words), work, work / "out.log") as process:
        wait_for(lambda: list(work.glob("out/runs/*/events*")), 120)
        yield process


@pytest.fixture
def source(launched: subprocess.Popen[bytes]) -> Iterator[Source]:
    opened = open_source(find_target(str(launched.pid)))
    yield opened
    opened.close()


def test_metrics_come_from_its_event_files(source: Source, work: Path) -> None:
    snapshot = with_steps(source, 3)
    assert (snapshot.source, snapshot.status) == ("process", "running")
    assert snapshot.max_steps == STEPS
    assert snapshot.path == str(work)
    assert snapshot.command is not None and snapshot.command.endswith("--hub_token ***")
    assert "hf_abc" not in str(snapshot.to_json())
    assert snapshot.log_path == str(work / "out.log") and any("loss" in line.text for line in snapshot.log)
    assert (snapshot.used_gpus, snapshot.actions) == ((), frozenset()), "it computes on the CPU, and is not ours"
    assert snapshot.read_from[0].startswith(str(work / "out" / "runs"))
    accumulator = EventAccumulator(str(Path(snapshot.read_from[0]).parent), size_guidance={"scalars": 0})
    accumulator.Reload()
    losses = accumulator.Scalars("train/loss")
    # TensorBoard has read on: the same points up to the step that was shown.
    shown = [point for point in losses if point.step <= (snapshot.step or 0)]
    summary = snapshot.metrics["loss"]
    assert summary.count == len(shown) == len(snapshot.curve("loss"))
    assert summary.last == pytest.approx(shown[-1].value)
    assert with_steps(source, snapshot.step or 0).metrics["loss"].count > summary.count


def test_its_processes_have_roles_and_add_up_to_what_ps_says(source: Source) -> None:
    def whole() -> Snapshot | None:
        found = look(source)
        return found if len(found.processes) == 4 else None

    snapshot = wait_for(whole)
    assert isinstance(snapshot, Snapshot)
    assert sorted(process.role for process in snapshot.processes) == ["launcher", "loader", "loader", "trainer"]
    pids = ",".join(str(process.pid) for process in snapshot.processes)
    shown = subprocess.run(["ps", "-o", "rss=", "-p", pids], capture_output=True, text=True, check=True)
    assert snapshot.job_rss_bytes == pytest.approx(1024 * sum(map(int, shown.stdout.split())), rel=0.05)
    trainer = next(process for process in snapshot.processes if process.role == "trainer")
    assert (trainer.cpu_percent or 0.0) > 10
    assert snapshot.host.ram_total_bytes


def test_its_folder_shows_the_same_job(launched: subprocess.Popen[bytes], work: Path) -> None:
    source = open_source(find_target(str(work / "out")))
    snapshot = with_steps(source)
    assert (snapshot.source, snapshot.status) == ("trainer", "running")
    assert launched.pid in [process.pid for process in snapshot.processes]
    assert "machine" not in snapshot.unavailable
    assert snapshot.log_path == str(work / "out.log")
    source.close()


def test_a_copy_of_its_folder_shows_nothing_of_this_machine(
    launched: subprocess.Popen[bytes], work: Path, tmp_path: Path
) -> None:
    shutil.copytree(work / "out", tmp_path / "copy")
    for file in (tmp_path / "copy").rglob("*tfevents*"):
        file.rename(file.with_name(file.name.replace(os.uname().nodename, "elsewhere")))
    snapshot = look(open_source(find_target(str(tmp_path / "copy"))))
    assert snapshot.metrics["loss"].count
    assert (snapshot.processes, snapshot.gpus, snapshot.host.ram_total_bytes) == ((), (), None)
    assert "No process of this machine" in snapshot.unavailable["machine"]


def test_the_list_shows_the_job_once(
    launched: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [one for one in list_targets() if one.target.pid == launched.pid]
    assert len(found) == 1
    assert (found[0].status, found[0].target.kind) == ("running", "process")
    assert "train_tiny.py" in found[0].what
    assert "hf_abc" not in found[0].what
    assert default_target(found) == found[0].target
    children = [one.target.pid for one in list_targets() if one.target.name.startswith("train_tiny.py")]
    assert children.count(launched.pid) == 1


def test_states_without_events_and_a_log_behind_tee(work: Path) -> None:
    """No TensorBoard, output through a pipe: metrics are read from the file that tee writes."""
    command = (
        f"{sys.executable} train_fake.py --output_dir quiet --max_steps {STEPS} --report_to none 2>&1 | tee piped.log"
    )
    with started(["bash", "-c", command], work) as shell:
        wait_for(lambda: (work / "piped.log").exists() and b"loss" in (work / "piped.log").read_bytes())
        source = open_source(find_target(str(shell.pid)))
        snapshot = with_steps(source)
        assert snapshot.read_from == (str(work / "piped.log"),)
        assert snapshot.max_steps == STEPS
        by_log = with_steps(open_source(find_target(str(work / "piped.log"))))
        assert {process.pid for process in by_log.processes} == {process.pid for process in snapshot.processes}


def test_it_is_killed_while_it_is_watched(work: Path) -> None:
    words = ["train_fake.py", "--output_dir", "killed", "--max_steps", str(STEPS)]
    with started(python(*words), work, work / "killed.log") as process:
        wait_for(lambda: list(work.glob("killed/runs/*/events*")))
        source, folder = open_source(find_target(str(process.pid))), open_source(find_target(str(work / "killed")))
        with_steps(source, 3)
        with_steps(folder, 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        snapshot = look(source)
        assert (snapshot.status, snapshot.processes, snapshot.eta_s) == ("quiet", (), None)
        assert snapshot.ending is not None
        assert "had ended" in snapshot.ending.text
        assert snapshot.metrics["loss"].count > 3
        # The folder gains no step any more: not running, though it was written a moment ago.
        wait_for(lambda: look(folder).status == "quiet", 10)
        assert look(open_source(find_target(str(work / "killed")))).status == "quiet"


def test_a_job_that_reaches_its_last_step_has_finished(work: Path) -> None:
    words = ["train_fake.py", "--output_dir", "short", "--max_steps", "20"]
    with started(python(*words), work, work / "short.log") as process:
        # Seen before it wrote anything, and not again before its end.
        wait_for(lambda: ProcessTable().command(process.pid)[1:2] == ["train_fake.py"])
        source = open_source(find_target(str(process.pid)))
        assert look(source).step is None
        process.wait(60)
        snapshot = look(source)
        assert (snapshot.status, snapshot.step) == ("finished", 20)
        # Its event file is named after a process that is gone by now.
        assert "tfevents" in snapshot.read_from[0]
        assert snapshot.ending is not None


def test_old_files_in_its_output_folder_are_not_its_own(work: Path) -> None:
    """A new job in the folder of an old one: nothing is shown before it writes."""
    old = work / "again" / "runs" / "old"
    old.mkdir(parents=True)
    for file in work.glob("out/runs/*/events*"):
        shutil.copy(file, old / file.name)
    long_ago = time.time() - 3600
    for file in old.iterdir():
        os.utime(file, (long_ago, long_ago))
    with started(python("train.py", "--output_dir", "again"), work) as process:
        snapshot = look(open_source(find_target(str(process.pid))))
        assert snapshot.metrics == {}
        assert snapshot.processes


def test_a_number_that_was_used_again_is_not_taken_for_the_job() -> None:
    target = Target("process", Path("/"), "old", os.getpid(), started_s=1.0)
    snapshot = ProcessSource(target).poll()
    assert (snapshot.status, snapshot.processes) == ("quiet", ())
    assert snapshot.ending is not None
    assert snapshot.ending.text == f"Process {os.getpid()} has ended."


def test_a_job_that_writes_to_several_folders_is_read_from_its_own_files(work: Path, tmp_path: Path) -> None:
    """Two writers, beside event files of another process in the same folders."""
    write_scripts(tmp_path)
    (tmp_path / "train_loop.py").write_text(
        "import time\n"
        "from fake import Events\n"
        "writers = [Events(name) for name in ('a/loss', 'b')]\n"
        "for step in range(10**5):\n"
        "    for writer in writers:\n"
        "        writer.scalar('value', step, step)\n"
        "    time.sleep(0.05)\n"
    )
    with started(python("train_loop.py"), tmp_path) as process:
        wait_for(lambda: len(list(tmp_path.rglob("*tfevents*"))) == 2)
        for file in work.glob("out/runs/*/events*"):
            shutil.copy(file, tmp_path / "b" / file.name)
        source = open_source(find_target(str(process.pid)))
        snapshot = with_steps(source, 3)
        assert set(snapshot.metrics) == {"a/loss/value", "b/value"}
        assert snapshot.metrics["b/value"].count > 3
        assert all(f".{process.pid}." in file for file in snapshot.read_from)
