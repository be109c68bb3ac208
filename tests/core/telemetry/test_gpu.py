"""GPUs, their loads and the host over the fake driver: every sensor, every failure, cards that come and go."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest
from trainwiz.core.hardware import host as hardware_host
from trainwiz.core.hardware.gpus import read_gpus
from trainwiz.core.hardware.host import Limits
from trainwiz.core.telemetry.gpu import SENSORS, GpuSampler, LoadReader, free_bytes, is_outdated
from trainwiz.core.telemetry.machine import HOST_VALUES, MachineSampler, sample_host

from tests.fakes.nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_LOST,
    NO_PERMISSION,
    TIMEOUT,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeGpu,
    FakeMig,
    FakeNvml,
    fixtures,
)

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sampler(driver: FakeNvml, clock: Clock) -> Any:
    one = GpuSampler(retry_s=10.0, clock=clock)
    yield one
    one.close()


def test_every_sensor(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write(
        [
            FakeGpu(
                memory_used=3 * GIB, memory_reserved=GIB, utilization=97, temperature=79, power=241.5, fan=62, clock=1_650,
                throttle=pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
                | pynvml.nvmlClocksEventReasonGpuIdle,
                processes={os.getpid(): 2 * GIB}, graphics={1: GIB},
            )
        ]
    )  # fmt: skip
    (line,), unavailable = sampler.sample()
    assert unavailable == {}
    mine, desktop = line.pop("processes")
    assert (mine["pid"], mine["kind"], mine["memory_used_bytes"]) == (os.getpid(), "compute", 2 * GIB)
    assert "python" in mine["name"] or "pytest" in mine["name"]
    assert (desktop["pid"], desktop["kind"]) == (1, "graphics")
    assert line == {
        "index": 0,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "name": "NVIDIA GeForce RTX 3080",
        "mig": None,
        "utilization_percent": 97,
        "memory_used_bytes": 3 * GIB,
        "memory_total_bytes": 10 * GIB,
        "temperature_c": 79.0,
        "power_w": 241.5,
        "power_limit_w": 320.0,
        "fan_percent": 62,
        "clock_mhz": 1_650,
        "clock_limit_mhz": 1_980,
        "throttle_reasons": ["power limit", "heat (hardware)"],
    }
    json.dumps(line)


def test_a_card_lost_in_the_middle_leaves_the_others(driver: FakeNvml, sampler: GpuSampler, clock: Clock) -> None:
    cards = [FakeGpu(utilization=n) for n in (1, 2, 3)]
    driver.write(cards)
    assert sampler.sample()[1] == {}
    driver.write([cards[0], FakeGpu(utilization=2, lost=True), cards[2]])
    for _ in range(3):
        lines, unavailable = sampler.sample()
        assert [line["utilization_percent"] for line in lines] == [1, None, 3]
        assert all(lines[1][name] is None for name in SENSORS)
        assert lines[1]["uuid"] == "GPU-00000001-0000-0000-0000-000000000000", "it is still known which one is lost"
        assert list(unavailable) == ["gpus.1"]
        assert "lost" in unavailable["gpus.1"]
        clock.now_s += 11
    driver.write(cards)
    assert [line["utilization_percent"] for line in sampler.sample()[0]] == [1, 2, 3]


def test_a_card_lost_from_the_start(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(lost=True), FakeGpu(utilization=7)])
    (lost, alive), unavailable = sampler.sample()
    assert lost["uuid"] is None
    assert alive["utilization_percent"] == 7
    assert list(unavailable) == ["gpus.0"]
    driver.write([FakeGpu(utilization=3), FakeGpu(utilization=7)])
    back, _ = sampler.sample()[0]
    assert (back["uuid"], back["utilization_percent"]) == ("GPU-00000000-0000-0000-0000-000000000000", 3)


def test_a_card_that_comes_late_is_seen(driver: FakeNvml, sampler: GpuSampler, clock: Clock) -> None:
    assert sampler.sample() == ([], {"gpus": "the NVIDIA driver works and finds no GPU"})
    driver.write([FakeGpu()])
    clock.now_s += 5
    assert sampler.sample()[0] == [], "NVML counts its cards when it starts, and is not started again every second"
    clock.now_s += 6
    assert len(sampler.sample()[0]) == 1


def test_a_card_that_joins_others_is_seen(driver: FakeNvml, clock: Clock, tmp_path: Path) -> None:
    served = tmp_path / "gpus"
    (served / "0000:01:00.0").mkdir(parents=True)
    sampler = GpuSampler(clock=clock, driver_folder=served)
    driver.write([FakeGpu()])
    assert len(sampler.sample()[0]) == 1
    driver.write([FakeGpu(), FakeGpu()])
    assert len(sampler.sample()[0]) == 1
    (served / "0000:02:00.0").mkdir()
    assert len(sampler.sample()[0]) == 2
    sampler.close()


def test_eight_cards_cost_little(driver: FakeNvml, sampler: GpuSampler) -> None:
    """Our own share of a sample: the fake library answers from a small file."""
    driver.write([FakeGpu(processes={os.getpid(): GIB}) for _ in range(8)])
    sampler.sample()

    def seconds() -> float:
        start_s = time.process_time()
        assert len(sampler.sample()[0]) == 8
        return time.process_time() - start_s

    assert min(seconds() for _ in range(10)) < 0.02, "2 % of a core at once a second"


def test_without_a_driver_there_is_a_reason_and_no_exception() -> None:
    sampler = GpuSampler()
    lines, unavailable = sampler.sample()
    if lines:
        pytest.skip("this machine has an NVIDIA GPU")
    assert "driver" in unavailable["gpus"]
    sampler.close()


# Several failures at once, in as many ways as drivers have.


def test_eight_cards_each_with_a_trouble_of_its_own(driver: FakeNvml, sampler: GpuSampler) -> None:
    mine = {os.getpid(): 2 * GIB}
    driver.write(
        [
            FakeGpu(utilization=10, processes=mine),
            FakeGpu(utilization=11, unsupported=["fan"]),
            FakeGpu(utilization=12, lost=True),
            FakeGpu(utilization=13, failing={"procs": NO_PERMISSION}),
            FakeGpu(utilization=14, unsupported=["limit"]),
            FakeGpu(utilization=15, failing={"temp": GPU_LOST}),
            FakeGpu(utilization=16, failing={"power": TIMEOUT, "fan": UNKNOWN}),
            FakeGpu(name="NVIDIA A100-SXM4-40GB", unsupported=["util"], mig=True, slices=[FakeMig("MIG-a")]),
        ]
    )
    for _ in range(2):
        lines, unavailable = sampler.sample()
        assert [line["utilization_percent"] for line in lines] == [10, 11, None, 13, 14, None, 16, None, None]
        assert [line["index"] for line in lines] == [0, 1, 2, 3, 4, 5, 6, 7, 7]
        assert lines[0]["processes"][0]["memory_used_bytes"] == 2 * GIB
        assert unavailable["gpus.1.fan_percent"] == "this GPU does not report it"
        assert "lost" in unavailable["gpus.2"]
        assert unavailable["gpus.3.processes"] == "the driver does not permit this user to read it"
        assert lines[3]["processes"] is None, "not an empty list, which would say that nobody is there"
        assert (lines[4]["power_limit_w"], lines[4]["power_w"]) == (None, 30.0)
        assert "lost" in unavailable["gpus.5"]
        assert all(lines[5][sensor] is None for sensor in SENSORS), "what was read before the loss is not shown"
        assert "in time" in unavailable["gpus.6.power_w"] and "unknown" in unavailable["gpus.6.fan_percent"]
        assert (lines[7]["mig"], lines[8]["mig"]) == ("enabled", "1g.5gb")
        assert not [key for key in unavailable if key.startswith("gpus.0")]
        json.dumps(lines, allow_nan=False)


def test_what_fails_for_a_moment_is_asked_again(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(failing={"power": TIMEOUT, "procs": NO_PERMISSION}, power=200.0)])
    assert sampler.sample()[0][0]["power_w"] is None
    driver.write([FakeGpu(power=200.0, processes={os.getpid(): GIB})])
    (line,), unavailable = sampler.sample()
    assert (line["power_w"], len(line["processes"]), unavailable) == (200.0, 1, {})


def test_a_process_that_nobody_here_can_see_has_no_name(driver: FakeNvml, sampler: GpuSampler) -> None:
    """As in a container, where the driver speaks of the machine's pids."""
    driver.write([FakeGpu(processes={4_000_000: 3 * GIB})])
    (line,), unavailable = sampler.sample()
    assert line["processes"] == [
        {"pid": 4_000_000, "name": None, "kind": "compute", "memory_used_bytes": 3 * GIB}
    ]  # fmt: skip
    assert unavailable == {}


@pytest.mark.parametrize(
    ("code", "words"),
    [(DRIVER_NOT_LOADED, "not loaded"), (VERSION_MISMATCH, "reboot"), (UNKNOWN, "unknown error")],
)
def test_a_driver_that_does_not_start_is_one_reason(driver: FakeNvml, code: int, words: str) -> None:
    driver.write([FakeGpu()], init_error=code)
    sampler = GpuSampler()
    lines, unavailable = sampler.sample()
    assert lines == []
    assert list(unavailable) == ["gpus"] and words in unavailable["gpus"]


def test_a_driver_that_stops_answering_leaves_the_cards_with_a_reason(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(utilization=1)])
    assert sampler.sample()[1] == {}
    driver.write([FakeGpu(utilization=1)], call_error=TIMEOUT)
    lines, unavailable = sampler.sample()
    assert lines == []
    assert "in time" in unavailable["gpus"]
    driver.write([FakeGpu(utilization=2)])
    assert sampler.sample()[0][0]["utilization_percent"] == 2


def test_a_fan_that_no_fan_can_be_is_not_shown(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(fan=4_294_967_295)])
    (line,), unavailable = sampler.sample()
    assert line["fan_percent"] is None and "gpus.0.fan_percent" in unavailable


# GpuLoads: the figures that a GPU is chosen by.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the driver keeps one folder for each card; NVML tells of a new card only after a new start."""
    (tmp_path / "driver").mkdir()
    return tmp_path / "driver"


@pytest.fixture
def loads(driver: FakeNvml, folder: Path) -> Iterator[LoadReader]:
    one = LoadReader(GpuSampler(driver_folder=folder))
    yield one
    one.close()


def card(number: int, **changes: object) -> FakeGpu:
    return FakeGpu(**{"uuid": f"GPU-{number}", "memory_total": 10 * GIB, **changes})  # type: ignore[arg-type]


def test_who_holds_most_comes_first(driver: FakeNvml, loads: LoadReader) -> None:
    mine = os.getpid()
    driver.write([card(0, memory_used=5 * GIB, utilization=93, processes={2**22 + 5: GIB, mine: 4 * GIB})])
    (load,) = loads.read().gpus
    assert (load.used_bytes, load.utilization_percent, load.problem) == (5 * GIB, 93, "")
    assert [(one.pid, one.memory_bytes) for one in load.holders] == [(mine, 4 * GIB), (2**22 + 5, GIB)]
    assert load.holders[0].name and load.holders[1].name is None


def test_free_memory_is_the_plans_capacity_and_follows_what_is_used(driver: FakeNvml, loads: LoadReader) -> None:
    """The driver's own reserve is in neither figure."""
    driver.write([card(0, memory_used=2 * GIB, memory_reserved=GIB)])
    (gpu,) = read_gpus().gpus
    (load,) = loads.read().gpus
    assert free_bytes(gpu, load) == gpu.memory_free_bytes
    driver.write([card(0, memory_used=6 * GIB, memory_reserved=GIB)])
    (load,) = loads.read().gpus
    assert free_bytes(gpu, load) == (gpu.memory_free_bytes or 0) - 4 * GIB
    assert is_outdated((gpu,), loads.read()), "a plan would count with memory that is taken"
    driver.write([card(0, memory_used=2 * GIB + 2**27, memory_reserved=GIB)])
    assert not is_outdated((gpu,), loads.read())
    assert free_bytes(gpu, None) == gpu.memory_free_bytes


def test_a_card_that_is_lost_comes_or_goes_is_another_machine(
    driver: FakeNvml, loads: LoadReader, folder: Path
) -> None:
    driver.write([card(0), card(1)])
    gpus = read_gpus().gpus
    assert not is_outdated(gpus, loads.read())
    driver.write([card(0), card(1, lost=True)])
    lost = loads.read()
    assert is_outdated(gpus, lost) and "lost" in lost.gpus[1].problem
    assert not is_outdated(read_gpus().gpus, lost)
    driver.write([card(0), card(1), card(2)])
    (folder / "0000:03:00.0").mkdir()
    more = loads.read()
    assert [load.uuid for load in more.gpus] == ["GPU-0", "GPU-1", "GPU-2"]
    assert is_outdated(gpus, more)
    loads.close()
    assert not is_outdated(read_gpus().gpus, more)


def test_slices_are_found_by_their_own_name(driver: FakeNvml, loads: LoadReader) -> None:
    parts = [FakeMig(uuid="MIG-a", memory_used=GIB), FakeMig(uuid="MIG-b", gpu_instance=2)]
    driver.write([card(0, name="NVIDIA A100-SXM4-40GB", mig=True, slices=parts)])
    whole, first, second = read_gpus().gpus
    now = loads.read()
    assert not is_outdated((whole, first, second), now)
    assert now.of(first) is not now.of(whole) and now.of(first).used_bytes == GIB  # type: ignore[union-attr]


def test_no_driver_is_a_reason(driver: FakeNvml, loads: LoadReader) -> None:
    driver.write(init_error=DRIVER_NOT_LOADED)
    now = loads.read()
    assert now.gpus == () and "not loaded" in now.problem


# The host of a sample.


def test_a_sample_has_numbers_in_their_ranges(tmp_path: Path) -> None:
    sample_host(tmp_path)
    sum(number * number for number in range(300_000))
    line = sample_host(tmp_path / "not" / "made")
    assert 0 < line["ram_used_bytes"] < line["ram_total_bytes"]
    assert 0 < line["cpu_percent"] <= 100
    assert 0 < line["disk_free_bytes"] <= line["disk_total_bytes"]
    assert 0 <= line["swap_used_bytes"] <= line["swap_total_bytes"]
    assert set(line) == {*HOST_VALUES, "unavailable"}
    assert line["unavailable"] == {}


def test_the_limit_of_a_container_is_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hardware_host, "memory_limits", lambda groups: Limits(memory_bytes=4_000, memory_available_bytes=1_000)
    )
    line = sample_host(tmp_path)
    assert (line["ram_used_bytes"], line["ram_total_bytes"]) == (3_000, 4_000)


def test_what_cannot_be_read_is_a_reason_and_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(psutil, "swap_memory", refused)
    row = MachineSampler(tmp_path).sample([{"pid": 1}])
    assert row["host"]["swap_used_bytes"] is None
    assert row["unavailable"]["host.swap_used_bytes"] == "Permission denied"
    assert row["host"]["ram_used_bytes"] > 0
    assert row["processes"] == [{"pid": 1}]
