"""GPUs, their loads and the host over the fake driver: every sensor, every failure, cards that come and go; live samples."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pynvml
import pytest
from trainwiz.core.hardware import host as hardware_host
from trainwiz.core.hardware.host import Memory
from trainwiz.core.hardware.nvml import read_gpus
from trainwiz.core.telemetry.gpu import READS, GpuSampler, LoadReader, free_bytes, is_outdated
from trainwiz.core.telemetry.job_source import with_machine
from trainwiz.core.telemetry.machine import MachineHistory, MachineSampler, sample_host
from trainwiz.core.telemetry.snapshot import Snapshot

from tests.core.telemetry.foreign_jobs import look, python, started, write_scripts
from tests.fakes.nvml import GIB, GPU_LOST, NO_PERMISSION, TIMEOUT, UNKNOWN, FakeGpu, FakeMig, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library
driver = fixtures.driver
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
ME = os.getpid()


@pytest.fixture
def sampler(driver: FakeNvml) -> Iterator[GpuSampler]:
    with closing(GpuSampler()) as one:
        yield one


def test_every_sensor(driver: FakeNvml, sampler: GpuSampler) -> None:
    reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    reasons |= pynvml.nvmlClocksEventReasonGpuIdle
    told: dict[str, Any] = {"temperature": 79, "power": 241.5, "fan": 62, "clock": 1_650, "throttle": reasons}
    held = {"memory_used": 3 * GIB, "memory_reserved": GIB, "processes": {ME: 2 * GIB}, "graphics": {1: GIB}}
    driver.write([FakeGpu(utilization=97, **told, **held)])
    (line,), unavailable = sampler.sample()
    assert unavailable == {}
    json.dumps(line)
    mine, desktop = line.pop("processes")
    assert (mine["pid"], mine["kind"], mine["memory_used_bytes"]) == (ME, "compute", 2 * GIB)
    assert "python" in mine["name"] or "pytest" in mine["name"]
    assert (desktop["pid"], desktop["kind"]) == (1, "graphics")
    assert line == {
        "index": 0, "uuid": "GPU-00000000-0000-0000-0000-000000000000", "name": "NVIDIA GeForce RTX 3080",
        "mig": None, "utilization_percent": 97, "memory_used_bytes": 3 * GIB, "memory_total_bytes": 10 * GIB,
        "temperature_c": 79.0, "power_w": 241.5, "power_limit_w": 320.0, "fan_percent": 62, "clock_mhz": 1_650,
        "clock_limit_mhz": 1_980, "throttle_reasons": ["power limit", "heat (hardware)"],
    }  # fmt: skip


def test_a_lost_card_leaves_the_others_and_comes_back(driver: FakeNvml) -> None:
    seconds = count(step=11)
    sampler = GpuSampler(lambda: next(seconds))
    driver.write([FakeGpu(lost=True), FakeGpu(utilization=2)])
    (lost, alive), unavailable = sampler.sample()
    assert (lost["uuid"], alive["utilization_percent"], list(unavailable)) == (None, 2, ["gpus.0"])
    cards = [FakeGpu(utilization=n) for n in (1, 2)]
    driver.write(cards)
    assert sampler.sample()[0][1]["utilization_percent"] == 2
    driver.write([cards[0], FakeGpu(utilization=2, lost=True)])
    for _ in range(3):
        lines, unavailable = sampler.sample()
        assert [line["utilization_percent"] for line in lines] == [1, None]
        assert lines[1]["uuid"] == "GPU-00000001-0000-0000-0000-000000000000", "it is still known which one is lost"
        assert list(unavailable) == ["gpus.1"] and "lost" in unavailable["gpus.1"]
    driver.write(cards)
    assert [line["utilization_percent"] for line in sampler.sample()[0]] == [1, 2]
    sampler.close()


def test_cards_each_with_a_trouble_of_its_own(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([
        FakeGpu(utilization=11, unsupported=["fan", "limit"], processes={ME: 2 * GIB}),
        FakeGpu(utilization=13, failing={"procs": NO_PERMISSION}),
        FakeGpu(utilization=15, failing={"temp": GPU_LOST}),
        FakeGpu(utilization=16, failing={"power": TIMEOUT, "fan": UNKNOWN}),
        FakeGpu(name="NVIDIA A100-SXM4-40GB", unsupported=["util"], mig=True, slices=[FakeMig("MIG-a")]),
    ])  # fmt: skip
    for _ in range(2):
        lines, unavailable = sampler.sample()
        assert [line["utilization_percent"] for line in lines] == [11, 13, None, 16, None, None]
        assert [line["index"] for line in lines] == [0, 1, 2, 3, 4, 4]
        assert unavailable["gpus.0.fan_percent"] == "this GPU does not report it"
        assert (lines[0]["power_limit_w"], lines[0]["power_w"]) == (None, 30.0)
        assert unavailable["gpus.1.processes"] == "this user has no permission to read it"
        assert lines[1]["processes"] is None, "not an empty list, which would say that nobody is there"
        assert "lost" in unavailable["gpus.2"]
        assert all(lines[2][sensor] is None for sensor in READS), "what was read before the loss is not shown"
        assert "in time" in unavailable["gpus.3.power_w"] and "unknown" in unavailable["gpus.3.fan_percent"]
        assert (lines[4]["mig"], lines[5]["mig"]) == ("enabled", "1g.5gb")
        json.dumps(lines, allow_nan=False)


def test_what_fails_for_a_moment_is_asked_again(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(failing={"power": TIMEOUT, "procs": NO_PERMISSION}, power=200.0)])
    sampler.sample()
    driver.write([FakeGpu(power=200.0, processes={ME: GIB})])
    (line,), unavailable = sampler.sample()
    assert (line["power_w"], len(line["processes"]), unavailable) == (200.0, 1, {})
    driver.write([FakeGpu(utilization=1)], call_error=TIMEOUT)
    lines, unavailable = sampler.sample()
    assert lines == [] and "in time" in unavailable["gpus"]
    # The second process is of another container; no fan turns that fast.
    driver.write([FakeGpu(utilization=2, fan=4_294_967_295, processes={4_000_000: 3 * GIB})])
    (line,), unavailable = sampler.sample()
    assert (line["utilization_percent"], line["fan_percent"], list(unavailable)) == (2, None, ["gpus.0.fan_percent"])
    stranger = {"pid": 4_000_000, "name": None, "kind": "compute", "memory_used_bytes": 3 * GIB}
    assert line["processes"] == [stranger]


@pytest.fixture
def loads(driver: FakeNvml) -> Iterator[LoadReader]:
    with closing(LoadReader()) as one:
        yield one


def card(number: int, **changes: Any) -> FakeGpu:
    return FakeGpu(**{"uuid": f"GPU-{number}", "memory_total": 10 * GIB, **changes})


def test_free_memory_is_the_plans_capacity_and_who_holds_it_is_named(driver: FakeNvml, loads: LoadReader) -> None:
    """The driver's own reserve is in neither figure."""
    driver.write([card(0, memory_used=5 * GIB, utilization=93, processes={2**22 + 5: GIB, ME: 4 * GIB})])
    (load,) = loads.read().gpus
    assert (load.memory_used_bytes, load.utilization_percent, load.problem) == (5 * GIB, 93, None)
    held = {process.pid: process for process in load.processes}
    assert {pid: process.memory_used_bytes for pid, process in held.items()} == {2**22 + 5: GIB, ME: 4 * GIB}
    assert held[ME].name and held[2**22 + 5].name is None
    driver.write([card(0, memory_used=2 * GIB, memory_reserved=GIB)])
    (gpu,) = read_gpus().gpus
    (load,) = loads.read().gpus
    assert free_bytes(gpu, load) == free_bytes(gpu, None) == gpu.memory_free_bytes
    driver.write([card(0, memory_used=6 * GIB, memory_reserved=GIB)])
    (load,) = loads.read().gpus
    assert free_bytes(gpu, load) == (gpu.memory_free_bytes or 0) - 4 * GIB
    assert is_outdated((gpu,), loads.read()), "a plan would count with memory that is taken"
    driver.write([card(0, memory_used=2 * GIB + 2**27, memory_reserved=GIB)])
    assert not is_outdated((gpu,), loads.read())


def test_a_sample_has_numbers_in_their_ranges_and_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_host(tmp_path)
    # The kernel counts in hundredths of a second, and some count a process's time late.
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    line, unavailable = sample_host(tmp_path / "not" / "made")
    assert 0 < line["ram_used_bytes"] < line["ram_total_bytes"]
    assert 0 < line["cpu_percent"] <= 100
    assert 0 < line["disk_free_bytes"] <= line["disk_total_bytes"]
    assert 0 <= line["swap_used_bytes"] <= line["swap_total_bytes"]
    assert unavailable == {}
    # The limit of a container is the total.
    monkeypatch.setattr(hardware_host, "read_memory", lambda: Memory(4_000, 1_000))
    line, _ = sample_host(tmp_path)
    assert (line["ram_used_bytes"], line["ram_total_bytes"]) == (3_000, 4_000)

    monkeypatch.setattr(psutil, "swap_memory", Mock(side_effect=PermissionError(13, "Permission denied")))
    row = MachineSampler(tmp_path, ME).sample()
    assert row["host"]["swap_used_bytes"] is None and row["host"]["ram_used_bytes"] > 0
    assert row["unavailable"]["host.swap_used_bytes"] == "Permission denied"
    assert row["processes"][0]["pid"] == ME


@on_linux
def test_the_jobs_memory_is_apart_from_others_and_a_hidden_job_has_reasons(tmp_path: Path, driver: FakeNvml) -> None:
    scripts = write_scripts(tmp_path)
    with started(python("train.py"), scripts, WORKERS="1") as job, started(["sleep", "600"], scripts) as other:
        ours = FakeGpu(memory_used=9 * GIB, processes={job.pid: 5 * GIB, other.pid: 3 * GIB}, utilization=97)
        driver.write([ours, FakeGpu(memory_used=1 * GIB, processes={other.pid: 1 * GIB}), FakeGpu(lost=True)])
        snapshot = look(job.pid)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trainwiz.core.telemetry.job_source.open_files", lambda pid: None)
            hidden = look(job.pid)
    assert hidden.status == "running" and hidden.job_rss_bytes
    assert "belongs to another user" in hidden.unavailable["metrics"]
    first, second, lost = snapshot.gpus
    assert (first.memory_used_bytes, first.job_memory_bytes) == (9 * GIB, 5 * GIB)
    assert {process.pid: process.mine for process in first.processes} == {job.pid: True, other.pid: False}
    assert second.job_memory_bytes is None and lost.problem is not None
    assert snapshot.to_json()["gpus"][0]["utilization_percent"] == 97
    assert snapshot.used_gpus


@on_linux
def test_a_driver_that_names_no_process_of_the_job_is_said(driver: FakeNvml) -> None:
    driver.write([FakeGpu(memory_used=GIB, processes={999999999: GIB})])
    bare = Snapshot(source="process", path="/", name="x", status="running", time_s=0.0)
    history = MachineHistory()
    history.add_rows([MachineSampler(Path("/"), ME).sample()])
    assert "lists no process of this job" in with_machine(bare, history, uses_gpu=True).unavailable["job_gpu_memory"]
    unknown = with_machine(bare, history, uses_gpu=None)
    assert "job_gpu_memory" not in unknown.unavailable and unknown.used_gpus
    # The cards of the machine are not those of a job that computes on the CPU.
    assert with_machine(bare, history, uses_gpu=False).used_gpus == ()
