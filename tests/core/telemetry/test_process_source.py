"""Jobs watched by their processes: a real Trainer under a real accelerate launch, jobs that seem to train, side by side."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from trainwiz.core.lines import Seldom
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
STATES = """
import json, pathlib, time
from fake import load_framework
load_framework()
state = {"global_step": 4, "max_steps": 9, "epoch": 1.0, "log_history": [{"step": 4, "epoch": 1.0, "loss": 7.0}]}
folder = pathlib.Path("written in code/checkpoint-4")
folder.mkdir(parents=True, exist_ok=True)
(folder / "trainer_state.json").write_text(json.dumps(state))
time.sleep(600)
"""
QUEUE = """
import os, subprocess, sys, fake
fake.load_framework()
command = [sys.executable, "train_fake.py", "--output_dir", "same", "--max_steps", "100000"]
jobs = [subprocess.Popen(command, env=os.environ | {"LOSS": value}) for value in "12"]
for job in jobs:
    job.wait()
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Scripts that are called like trainings, one that starts two, and one that is not called so."""
    folder = write_scripts(tmp_path / "work")
    for name, text in {"states.py": STATES, "train_queue.py": QUEUE}.items():
        (folder / name).write_text(text)
    return folder


def with_steps(source: Source, more_than: int = 0) -> Snapshot:
    """A look that shows more steps than that."""
    wait_for(lambda: (source.read_all().step or 0) > more_than)
    return source.read_all(("loss",))


def opened(what: object) -> Source:
    return open_source(find_target(str(what)))


def last(what: object) -> float | None:
    """The loss that is shown, by whatever name."""
    return next((summary.last for name, summary in look(what).metrics.items() if name.endswith("loss")), None)


def test_a_launched_trainer_and_its_folder(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun, one trainer, two loader workers, event files."""
    words = ["--output_dir", "out", "--max_steps", str(STEPS), "--hub_token", "hf_abcdefghijkl"]
    with started(python("torchrun", "train_fake.py", *words), work, work / "out.log", WORKERS="2") as launched:
        wait_for(lambda: list(work.glob("out/runs/*/events*")))
        source = opened(launched.pid)
        snapshot = with_steps(source, 3)
        assert (snapshot.source, snapshot.status, snapshot.max_steps) == ("process", "running", STEPS)
        assert snapshot.command is not None and snapshot.command.endswith("--hub_token ***")
        assert "hf_abc" not in str(snapshot.to_json())
        assert snapshot.log_path == str(work / "out.log") and any("loss" in line.text for line in snapshot.log)
        assert (snapshot.used_gpus, snapshot.actions) == ((), frozenset()), "it computes on the CPU, and is not ours"
        assert snapshot.read_from[0].startswith(str(work / "out" / "runs"))
        summary = snapshot.metrics["loss"]
        assert (summary.count, summary.last) == (len(snapshot.curve("loss")), 1.0)
        assert with_steps(source, snapshot.step or 0).metrics["loss"].count > summary.count
        wait_for(lambda: len(source.read_all().processes) == 4)
        snapshot = source.read_all()
        assert sorted(one.role for one in snapshot.processes) == ["launcher", "loader", "loader", "trainer"]
        rss = sum(psutil.Process(one.pid).memory_info().rss for one in snapshot.processes)
        assert snapshot.job_rss_bytes == pytest.approx(rss, rel=0.05)
        assert max(one.cpu_percent or 0.0 for one in snapshot.processes if one.role == "trainer") > 1
        # Its folder shows the same job.
        folder = opened(work / "out")
        snapshot = with_steps(folder)
        assert (snapshot.source, snapshot.status) == ("trainer", "running")
        assert launched.pid in [process.pid for process in snapshot.processes]
        assert "machine" not in snapshot.unavailable
        assert snapshot.log_path == str(work / "out.log")
        # The list shows it once.
        monkeypatch.chdir(tmp_path)
        targets = list_targets()
        (found,) = (one for one in targets if one.target.pid == launched.pid)
        assert (found.status, found.target.kind, default_target([found])) == ("running", "process", found.target)
        assert "train_fake.py" in found.what and "hf_abc" not in found.what
        # A copy of its folder shows nothing of this machine.
        shutil.copytree(work / "out", tmp_path / "copy")
        for file in (tmp_path / "copy").rglob("*tfevents*"):
            file.rename(file.with_name(file.name.replace(os.uname().nodename, "elsewhere")))
        snapshot = look(tmp_path / "copy")
        assert snapshot.metrics["loss"].count
        assert (snapshot.processes, snapshot.gpus, snapshot.host.ram_total_bytes) == ((), (), None)
        assert "No process on this machine" in snapshot.unavailable["machine"]
        # It is killed while it is watched.
        os.killpg(launched.pid, signal.SIGKILL)
        launched.wait()
        snapshot = source.read_all()
        assert (snapshot.status, snapshot.processes, snapshot.eta_s) == ("quiet", (), None)
        assert snapshot.ending is not None and "had ended" in snapshot.ending.text
        assert snapshot.metrics["loss"].count > 3
        # The folder gains no step any more: not running, though it was written a moment ago.
        wait_for(lambda: folder.read_all().status == "quiet")
        assert look(work / "out").status == "quiet"


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


def test_a_job_shows_nothing_that_is_older_and_has_finished_at_its_last_step(work: Path) -> None:
    words = ["train_fake.py", "--output_dir", "short", "--max_steps", "20"]
    old, long_ago = write_points(work / "short" / "runs" / "old", {"train/loss": [(1, 9.0)]}), time.time() - 3600
    # Its name says when it was begun, too.
    os.utime(old.rename(old.with_name(f"events.out.tfevents.{long_ago:.0f}.box.7.0")), (long_ago, long_ago))
    sign = work / "go on"
    with started(python(*words), work, work / "short.log", WAITS_FOR=str(sign)) as process:
        # Seen before it wrote anything, and not again before its end.
        wait_for(lambda: ProcessTable().command(process.pid)[1:2] == ["train_fake.py"])
        source = opened(process.pid)
        snapshot = source.read_all()
        assert (snapshot.step, snapshot.metrics) == (None, {}) and snapshot.processes
        sign.touch()
        process.wait(250)
        snapshot = source.read_all()
        assert (snapshot.status, snapshot.step, snapshot.metrics["loss"].maximum) == ("finished", 20, 1.0)
        # Its event file is named after a process that is gone by now.
        assert "tfevents" in snapshot.read_from[0]
        assert snapshot.ending is not None


def test_a_number_that_was_used_again_is_not_taken_for_the_job() -> None:
    snapshot = ProcessSource(Target("process", Path("/"), "old", os.getpid(), started_s=1.0)).poll()
    assert (snapshot.status, snapshot.processes) == ("quiet", ())
    assert snapshot.ending is not None
    assert snapshot.ending.text == f"Process {os.getpid()} has ended."


def test_two_writers_in_one_folder_keep_their_figures_and_a_queue_does_not_hide_them(work: Path) -> None:
    with started(python("train_queue.py"), work) as queue:
        wait_for(lambda: len(list(work.rglob("*tfevents*"))) == 2)
        below = trainings_below(queue.pid, ProcessTable())
        assert len(below) == 2
        wait_for(lambda: all(last(pid) is not None for pid in below))
        assert sorted(last(pid) or 0.0 for pid in below) == [1.0, 2.0]
        listed = {found.target.pid for found in list_targets(work)}
        assert set(below) <= listed and queue.pid not in listed
        folder = look(work / "same")
        assert folder.status == "running" and folder.processes


def test_a_record_that_nothing_proves_or_two_name_is_not_shown(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seldom, "do", lambda seldom, what: what())
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
    words = ["states.py", "--output_dir", "written in code"]
    with started(python(*words), work) as one:
        wait_for(lambda: look(one.pid).metrics)
        source = opened(one.pid)
        assert source.read_all().metrics
        with started(python(*words), work) as two:
            wait_for(lambda: ProcessTable().command(two.pid)[1:2] == ["states.py"])
            wait_for(lambda: look(one.pid).metrics == look(two.pid).metrics == {})
            assert source.read_all().metrics == {}
