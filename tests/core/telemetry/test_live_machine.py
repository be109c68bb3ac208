"""Live samples in the form of system.jsonl: the job's share of the cards, what cannot be read, other users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.core.telemetry.discovery import find_target
from trainwiz.core.telemetry.job_source import with_machine
from trainwiz.core.telemetry.machine import LiveMachine, MachineHistory
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import open_source

from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts
from tests.core.telemetry.test_trainer_state import checkpoint
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


def bare(status: str = "running") -> Snapshot:
    return Snapshot(source="process", path="/", name="x", status=status, time_s=0.0)


def test_a_sample_is_taken_once_in_a_while(tmp_path: Path, driver: FakeNvml) -> None:
    machine = LiveMachine([os.getpid()], tmp_path, every_s=60.0)
    row = machine.sample()
    assert row is not None
    assert {"time_s", "gpus", "host", "processes", "unavailable"} <= set(row)
    assert row["processes"][0]["pid"] == os.getpid()
    assert machine.sample() is None
    machine.hurry()
    assert machine.sample() is not None
    machine.close()


def test_the_jobs_memory_of_a_card_is_apart_from_others(tmp_path: Path, driver: FakeNvml) -> None:
    scripts = write_scripts(tmp_path)
    with started(python("train.py"), scripts, WORKERS="1") as job, started(["sleep", "600"], scripts) as other:
        driver.write(
            [
                FakeGpu(memory_used=9 * GIB, processes={job.pid: 5 * GIB, other.pid: 3 * GIB}, utilization=97),
                FakeGpu(memory_used=1 * GIB, processes={other.pid: 1 * GIB}),
                FakeGpu(lost=True),
            ]
        )
        source = open_source(find_target(str(job.pid)))
        snapshot = source.read_all()
        source.close()
    first, second, lost = snapshot.gpus
    assert (first.memory_used_bytes, first.job_memory_bytes) == (9 * GIB, 5 * GIB)
    assert {process.pid: process.mine for process in first.processes} == {job.pid: True, other.pid: False}
    assert second.job_memory_bytes is None
    assert lost.problem is not None
    assert snapshot.to_json()["gpus"][0]["utilization_percent"] == 97
    assert snapshot.used_gpus


def test_a_driver_that_names_no_process_of_the_job_is_said(driver: FakeNvml) -> None:
    driver.write([FakeGpu(memory_used=GIB, processes={999999999: GIB})])
    machine, history = LiveMachine([os.getpid()], Path("/")), MachineHistory()
    row = machine.sample()
    assert row is not None
    history.add_rows([row])
    assert "names no process of this job" in with_machine(bare(), history, uses_gpu=True).unavailable["job_gpu_memory"]
    unknown = with_machine(bare(), history, uses_gpu=None)
    assert "job_gpu_memory" not in unknown.unavailable
    assert unknown.used_gpus
    # The cards of the machine are not those of a job that computes on the CPU.
    assert with_machine(bare(), history, uses_gpu=False).used_gpus == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_another_users_process_has_values_and_reasons(tmp_path: Path) -> None:
    """Root sees everything: the look itself is made as a user without rights."""
    scripts = write_scripts(tmp_path)
    with started(python("train.py"), scripts) as job:
        wait_for(lambda: len(Path(f"/proc/{job.pid}/cmdline").read_bytes()) > 0)
        # The first look loads what a user without rights may not find.
        code = (
            "import json, os, sys\n"
            "from trainwiz.core.telemetry.discovery import find_target\n"
            "from trainwiz.core.telemetry.target import open_source\n"
            "open_source(find_target(sys.argv[1])).read_all()\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "print(json.dumps(open_source(find_target(sys.argv[1])).read_all().to_json()))\n"
        )
        done = subprocess.run(
            python("-c", code, str(job.pid)), cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
    assert document["status"] == "running"
    assert document["processes"][0]["rss_bytes"] > 0
    assert "belongs to another user" in document["unavailable"]["metrics"]


def test_a_folder_that_a_job_only_names_is_not_proved_to_be_its_output(tmp_path: Path) -> None:
    """`torchrun train.py out` does not say what `out` is, and that it is written to does not say by whom."""
    scripts = write_scripts(tmp_path)
    left = checkpoint(tmp_path / "out", 10)
    os.utime(left, (1_000, 1_000))
    with started(python(str(scripts / "torchrun"), str(scripts / "train.py"), "out"), tmp_path) as job:
        wait_for(lambda: len(ProcessTable().tree(job.pid)) > 1)
        source = open_source(find_target(str(tmp_path / "out")))
        assert source.read_all().processes == ()
        source.close()
        checkpoint(tmp_path / "out", 20)
        source = open_source(find_target(str(tmp_path / "out")))
        snapshot = source.read_all()
        source.close()
    assert snapshot.processes == () and snapshot.step == 20
