"""Whose figures are shown: real jobs side by side in one working folder, whose scripts are not called like trainings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trainwiz.core.telemetry.discovery import find_target, list_targets
from trainwiz.core.telemetry.job import trainings_below
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import open_source

from tests.core.telemetry.foreign_jobs import FAKE, FAKE_TRAINER, python, started, wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
    pytest.mark.timeout(180),
]
WRITER = """
import sys, time
from fake import Events, load_framework
load_framework()
events = Events(sys.argv[1])
for step in range(10**5):
    events.scalar("loss", step, float(sys.argv[2]))
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


@pytest.fixture(autouse=True)
def fake(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(FAKE)


def look(text: str) -> Snapshot:
    source = open_source(find_target(text))
    try:
        return source.read_all(("loss",))
    finally:
        source.close()


def last(text: str) -> float | None:
    """The loss that is shown for `text`, by whatever name."""
    return next((summary.last for name, summary in look(text).metrics.items() if name.endswith("loss")), None)


@pytest.mark.parametrize("folders", [("a", "b"), ("same", "same")], ids=["own folders", "one folder"])
def test_two_writers_in_one_working_folder_keep_their_figures(folders: tuple[str, str], tmp_path: Path) -> None:
    for script in ("go.py", "hf_plain.py"):
        (tmp_path / script).write_text(WRITER)
    with (
        started(python("go.py", folders[0], "1.0"), tmp_path) as one,
        started(python("hf_plain.py", folders[1], "2.0"), tmp_path) as two,
    ):
        wait_for(lambda: len(list(tmp_path.rglob("*tfevents*"))) == 2)
        for _ in range(3):
            wait_for(lambda: last(str(one.pid)) is not None and last(str(two.pid)) is not None)
            assert (last(str(one.pid)), last(str(two.pid))) == (1.0, 2.0)
        assert {one.pid, two.pid} <= {found.target.pid for found in list_targets(tmp_path)}
        folder = look(str(tmp_path / folders[0]))
        assert folder.status == "running"
        assert folder.processes


def test_a_trainer_beside_another_job_and_its_folder_that_lives(tmp_path: Path) -> None:
    """The Trainer's output folder stands on its command line, as its default, and its script is called hf_plain.py."""
    (tmp_path / "go.py").write_text(WRITER)
    (tmp_path / "hf_plain.py").write_text(
        FAKE_TRAINER.replace('"--output_dir"', '"--output_dir", default="trainer_output"')
    )
    with (
        started(python("go.py", "plain", "-3.0"), tmp_path) as other,
        started(python("hf_plain.py", "--max_steps", "100000"), tmp_path) as trainer,
    ):
        wait_for(lambda: (look(str(trainer.pid)).step or 0) > 2)
        snapshot = look(str(trainer.pid))
        assert (snapshot.max_steps, snapshot.status) == (100_000, "running")
        assert all(f".{trainer.pid}." in file for file in snapshot.read_from if "tfevents" in file)
        assert last(str(other.pid)) == -3.0
        folder = look(str(tmp_path / "trainer_output"))
        assert folder.status == "running"
        assert trainer.pid in [process.pid for process in folder.processes]


def test_a_record_that_nothing_proves_is_named_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(STATES)
    with started(python("go.py"), tmp_path) as process:
        place = tmp_path / "written in code"
        wait_for(lambda: list(place.glob("*/trainer_state.json")))
        snapshot = look(str(process.pid))
        assert snapshot.metrics == {}
        assert "nothing proves that this process writes it" in snapshot.unavailable["metrics"]
        assert f"`trainwiz monitor '{place}'`" in snapshot.unavailable["metrics"]
        folder = look(str(place))
        assert folder.metrics["loss"].last == 7.0
        assert folder.ended_s is None
        assert folder.written_s is not None
        assert "No process of this machine is known to write to it" in folder.unavailable["machine"]


def test_what_is_named_by_two_processes_is_shown_for_none(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(STATES)
    (tmp_path / "wait.py").write_text(
        "import fake, time\nfake.load_framework()\nprint('up', flush=True)\ntime.sleep(600)\n"
    )
    words = ["--output_dir", "written in code"]
    with started(python("go.py", *words), tmp_path) as one:
        wait_for(lambda: look(str(one.pid)).metrics)
        with started(python("wait.py", *words), tmp_path, tmp_path / "up.log") as two:
            wait_for(lambda: (tmp_path / "up.log").stat().st_size)
            for pid, other in ((one.pid, two.pid), (two.pid, one.pid)):
                snapshot = look(str(pid))
                assert snapshot.metrics == {}
                if pid == one.pid:
                    assert f"process {other} writes there as well" in snapshot.unavailable["metrics"]


def test_a_queue_does_not_hide_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(WRITER)
    (tmp_path / "train_queue.py").write_text(
        "import subprocess, sys, fake\nfake.load_framework()\n"
        "jobs = [subprocess.Popen([sys.executable, 'go.py', name, '1']) for name in 'ab']\n"
        "for job in jobs:\n    job.wait()\n"
    )
    with started(python("train_queue.py"), tmp_path) as queue:
        wait_for(lambda: len(list(tmp_path.rglob("*tfevents*"))) == 2)
        below = trainings_below(queue.pid, ProcessTable())
        assert len(below) == 2
        listed = {found.target.pid for found in list_targets(tmp_path)}
        assert set(below) <= listed
        assert queue.pid not in listed
