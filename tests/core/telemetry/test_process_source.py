"""Jobs watched by their processes: a real Trainer under a real accelerate launch, jobs that seem to train, side by side."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainwiz.core.telemetry.discovery import default_target, find_target, list_targets
from trainwiz.core.telemetry.job import trainings_below
from trainwiz.core.telemetry.job_source import ProcessSource
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_source

from tests.core.telemetry.event_writers import write_points
from tests.core.telemetry.foreign_jobs import look, python, started, wait_for, write_scripts

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
    pytest.mark.timeout(1200),
]
STEPS = 100_000
WRITER = """
import sys, time
from fake import Events, load_framework
load_framework()
writers = [Events(name) for name in sys.argv[2:]]
for step in range(10**5):
    for events in writers:
        events.scalar("loss", step, float(sys.argv[1]))
    time.sleep(0.1)
"""
STATES = """
import json, pathlib, time
from fake import load_framework
load_framework()
state = {"global_step": 4, "max_steps": 9, "epoch": 1.0, "log_history": [{"step": 4, "epoch": 1.0, "loss": 7.0}]}
folder = pathlib.Path("written in code/checkpoint-4")
folder.mkdir(parents=True)
(folder / "trainer_state.json").write_text(json.dumps(state))
time.sleep(600)
"""
WAIT = "import fake, time\nfake.load_framework()\nprint('up', flush=True)\ntime.sleep(600)\n"
QUEUE = """
import subprocess, sys, fake
fake.load_framework()
jobs = [subprocess.Popen([sys.executable, 'go.py', '1', name]) for name in 'ab']
for job in jobs:
    job.wait()
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Scripts that are called like trainings, and such that are not."""
    folder = write_scripts(tmp_path / "work")
    (folder / "go.py").write_text(WRITER)
    (folder / "hf_plain.py").write_text(WRITER)
    (folder / "states.py").write_text(STATES)
    return folder


def with_steps(source: Source, more_than: int = 0) -> Snapshot:
    """The first look that shows more steps than that."""

    def snapshot() -> Snapshot | None:
        found = source.read_all(("loss",))
        return found if found.step is not None and found.step > more_than else None

    found = wait_for(snapshot)
    assert isinstance(found, Snapshot)
    return found


def opened(what: object) -> Source:
    return open_source(find_target(str(what)))


def last(what: object) -> float | None:
    """The loss that is shown, by whatever name."""
    return next((summary.last for name, summary in look(what).metrics.items() if name.endswith("loss")), None)


def test_a_launched_trainer_with_loaders_by_its_processes_and_by_its_folder(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun, one trainer, two loader workers, event files."""
    words = ["--output_dir", "out", "--max_steps", str(STEPS), "--hub_token", "hf_abcdefghijkl"]
    with started(python("torchrun", "train_fake.py", *words), work, work / "out.log", WORKERS="2") as launched:
        wait_for(lambda: list(work.glob("out/runs/*/events*")))
        source = opened(launched.pid)
        snapshot = with_steps(source, 3)
        check_figures(snapshot, work)
        assert with_steps(source, snapshot.step or 0).metrics["loss"].count > snapshot.metrics["loss"].count
        wait_for(lambda: len(source.read_all().processes) == 4)
        check_processes(source.read_all())
        # Its folder shows the same job.
        snapshot = with_steps(opened(work / "out"))
        assert (snapshot.source, snapshot.status) == ("trainer", "running")
        assert launched.pid in [process.pid for process in snapshot.processes]
        assert "machine" not in snapshot.unavailable
        assert snapshot.log_path == str(work / "out.log")
        # The list shows it once.
        monkeypatch.chdir(tmp_path)
        targets = list_targets()
        found = [one for one in targets if one.target.pid == launched.pid]
        assert len(found) == 1
        assert (found[0].status, found[0].target.kind) == ("running", "process")
        assert "train_fake.py" in found[0].what and "hf_abc" not in found[0].what
        assert default_target(found) == found[0].target
        named = [one.target.pid for one in targets if one.target.name.startswith("train_fake.py")]
        assert named.count(launched.pid) == 1
        # A copy of its folder shows nothing of this machine.
        shutil.copytree(work / "out", tmp_path / "copy")
        for file in (tmp_path / "copy").rglob("*tfevents*"):
            file.rename(file.with_name(file.name.replace(os.uname().nodename, "elsewhere")))
        snapshot = look(tmp_path / "copy")
        assert snapshot.metrics["loss"].count
        assert (snapshot.processes, snapshot.gpus, snapshot.host.ram_total_bytes) == ((), (), None)
        assert "No process on this machine" in snapshot.unavailable["machine"]


def check_figures(snapshot: Snapshot, work: Path) -> None:
    """Those of its event files; its command without secrets."""
    assert (snapshot.source, snapshot.status) == ("process", "running")
    assert (snapshot.max_steps, snapshot.path) == (STEPS, str(work))
    assert snapshot.command is not None and snapshot.command.endswith("--hub_token ***")
    assert "hf_abc" not in str(snapshot.to_json())
    assert snapshot.log_path == str(work / "out.log") and any("loss" in line.text for line in snapshot.log)
    assert (snapshot.used_gpus, snapshot.actions) == ((), frozenset()), "it computes on the CPU, and is not ours"
    assert snapshot.read_from[0].startswith(str(work / "out" / "runs"))
    accumulator = EventAccumulator(str(Path(snapshot.read_from[0]).parent), size_guidance={"scalars": 0})
    # TensorBoard has read on: the same points up to the step that was shown.
    points = [point for point in accumulator.Reload().Scalars("train/loss") if point.step <= (snapshot.step or 0)]
    summary = snapshot.metrics["loss"]
    assert summary.count == len(points) == len(snapshot.curve("loss"))
    assert summary.last == pytest.approx(points[-1].value)


def check_processes(snapshot: Snapshot) -> None:
    """They have roles, and add up to what ps says."""
    assert sorted(process.role for process in snapshot.processes) == ["launcher", "loader", "loader", "trainer"]
    pids = ",".join(str(process.pid) for process in snapshot.processes)
    shown = subprocess.run(["ps", "-o", "rss=", "-p", pids], capture_output=True, text=True, check=True)
    assert snapshot.job_rss_bytes == pytest.approx(1024 * sum(map(int, shown.stdout.split())), rel=0.05)
    trainer = next(process for process in snapshot.processes if process.role == "trainer")
    assert (trainer.cpu_percent or 0.0) > 1
    assert snapshot.host.ram_total_bytes


def test_states_without_events_and_a_log_behind_tee(work: Path) -> None:
    """No TensorBoard, output through a pipe: metrics are read from the file that tee writes."""
    words = f"train_fake.py --output_dir quiet --max_steps {STEPS} --report_to none"
    with started(["bash", "-c", f"{sys.executable} {words} 2>&1 | tee piped.log"], work) as shell:
        piped = work / "piped.log"
        wait_for(lambda: piped.exists() and b"loss" in piped.read_bytes())
        snapshot = with_steps(opened(shell.pid))
        assert (snapshot.read_from, snapshot.max_steps) == ((str(piped),), STEPS)
        by_log = with_steps(opened(piped))
        assert {process.pid for process in by_log.processes} == {process.pid for process in snapshot.processes}


def test_it_is_killed_while_it_is_watched(work: Path) -> None:
    words = ["train_fake.py", "--output_dir", "killed", "--max_steps", str(STEPS)]
    with started(python(*words), work, work / "killed.log") as process:
        wait_for(lambda: list(work.glob("killed/runs/*/events*")))
        source, folder = opened(process.pid), opened(work / "killed")
        with_steps(source, 3)
        with_steps(folder, 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        snapshot = source.read_all()
        assert (snapshot.status, snapshot.processes, snapshot.eta_s) == ("quiet", (), None)
        assert snapshot.ending is not None and "had ended" in snapshot.ending.text
        assert snapshot.metrics["loss"].count > 3
        # The folder gains no step any more: not running, though it was written a moment ago.
        wait_for(lambda: folder.read_all().status == "quiet")
        assert look(work / "killed").status == "quiet"


def test_a_job_that_reaches_its_last_step_has_finished(work: Path) -> None:
    words = ["train_fake.py", "--output_dir", "short", "--max_steps", "20"]
    with started(python(*words), work, work / "short.log") as process:
        # Seen before it wrote anything, and not again before its end: it stands still while it is looked at.
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: ProcessTable().command(process.pid)[1:2] == ["train_fake.py"])
        source = opened(process.pid)
        assert source.read_all().step is None
        process.send_signal(signal.SIGCONT)
        process.wait(250)
        snapshot = source.read_all()
        assert (snapshot.status, snapshot.step) == ("finished", 20)
        # Its event file is named after a process that is gone by now.
        assert "tfevents" in snapshot.read_from[0]
        assert snapshot.ending is not None


def test_old_files_in_its_output_folder_are_not_its_own(work: Path) -> None:
    """A new job in the folder of an old one: nothing is shown before it writes."""
    old, long_ago = write_points(work / "again" / "runs" / "old", {"train/loss": [(1, 1.0)]}), time.time() - 3600
    os.utime(old, (long_ago, long_ago))
    with started(python("train.py", "--output_dir", "again"), work) as process:
        snapshot = look(process.pid)
        assert snapshot.metrics == {}
        assert snapshot.processes


def test_a_number_that_was_used_again_is_not_taken_for_the_job() -> None:
    snapshot = ProcessSource(Target("process", Path("/"), "old", os.getpid(), started_s=1.0)).poll()
    assert (snapshot.status, snapshot.processes) == ("quiet", ())
    assert snapshot.ending is not None
    assert snapshot.ending.text == f"Process {os.getpid()} has ended."


# Whose figures are shown: jobs side by side in one working folder, whose scripts are not called like trainings.


def test_a_job_that_writes_to_several_folders_is_read_from_its_own_files(work: Path) -> None:
    """Two writers, beside event files of another process in the same folders."""
    with started(python("go.py", "1", "a/loss", "b"), work) as process:
        wait_for(lambda: len(list(work.rglob("*tfevents*"))) == 2)
        write_points(work / "b", {"train/loss": [(1, 9.0)]})
        snapshot = with_steps(opened(process.pid), 3)
        assert set(snapshot.metrics) == {"a/loss/loss", "b/loss"}
        assert snapshot.metrics["b/loss"].count > 3
        assert all(f".{process.pid}." in file for file in snapshot.read_from)


def test_two_writers_in_one_folder_keep_their_figures(work: Path) -> None:
    with (
        started(python("go.py", "1.0", "same"), work) as one,
        started(python("hf_plain.py", "2.0", "same"), work) as two,
    ):
        wait_for(lambda: len(list(work.rglob("*tfevents*"))) == 2)
        for _ in range(2):
            wait_for(lambda: last(one.pid) is not None and last(two.pid) is not None)
            assert (last(one.pid), last(two.pid)) == (1.0, 2.0)
        assert {one.pid, two.pid} <= {found.target.pid for found in list_targets(work)}
        folder = look(work / "same")
        assert folder.status == "running" and folder.processes


def test_a_record_that_nothing_proves_or_two_name_is_not_shown(work: Path) -> None:
    (work / "wait.py").write_text(WAIT)
    place = work / "written in code"
    with started(python("states.py"), work) as process:
        wait_for(lambda: list(place.glob("*/trainer_state.json")))
        snapshot = look(process.pid)
        assert snapshot.metrics == {}
        assert "It has not written any known metrics" in snapshot.unavailable["metrics"]
        folder = look(place)
        assert folder.metrics["loss"].last == 7.0
        assert folder.ended_s is None and folder.written_s is not None
        assert "No process on this machine is known to write to it" in folder.unavailable["machine"]
    shutil.rmtree(place)
    words = ["--output_dir", "written in code"]
    with started(python("states.py", *words), work) as one:
        wait_for(lambda: look(one.pid).metrics)
        with started(python("wait.py", *words), work, work / "up.log") as two:
            wait_for(lambda: (work / "up.log").stat().st_size)
            first, second = look(one.pid), look(two.pid)
            assert first.metrics == second.metrics == {}


def test_a_queue_does_not_hide_what_it_started(work: Path) -> None:
    (work / "train_queue.py").write_text(QUEUE)
    with started(python("train_queue.py"), work) as queue:
        wait_for(lambda: len(list(work.rglob("*tfevents*"))) == 2)
        below = trainings_below(queue.pid, ProcessTable())
        assert len(below) == 2
        listed = {found.target.pid for found in list_targets(work)}
        assert set(below) <= listed
        assert queue.pid not in listed
