"""GpuSampler over the fake driver: every sensor, every failure, and cards that come and go."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
from trainwiz.core.telemetry.gpu import SENSORS, GpuSampler

from tests.fakes.nvml import DRIVER_NOT_LOADED, GIB, FakeGpu, FakeMig, FakeNvml, fixtures

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


def test_values_move_with_the_card(driver: FakeNvml, sampler: GpuSampler) -> None:
    seen = []
    for utilization in (10, 90):
        driver.write([FakeGpu(utilization=utilization)])
        seen.append(sampler.sample()[0][0]["utilization_percent"])
    assert seen == [10, 90]


def test_unsupported_sensors_are_null_with_a_reason(driver: FakeNvml, sampler: GpuSampler) -> None:
    silent = ["temp", "power", "limit", "throttle", "procs", "util", "fan", "clock", "clock_limit"]
    driver.write([FakeGpu(unsupported=silent, memory_used=GIB), FakeGpu(utilization=50)])
    for _ in range(2):
        (poor, rich), unavailable = sampler.sample()
        lacking = set(SENSORS) - {"memory_used_bytes", "memory_total_bytes"}
        assert {name for name in SENSORS if poor[name] is None} == lacking
        assert set(unavailable) == {f"gpus.0.{name}" for name in lacking}
        assert unavailable["gpus.0.power_w"] == "this GPU does not report it"
        assert poor["memory_used_bytes"] == GIB
        assert rich["utilization_percent"] == 50


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


def test_a_lost_card_and_a_driver_that_would_not_start_again(
    driver: FakeNvml, sampler: GpuSampler, clock: Clock
) -> None:
    driver.write([FakeGpu(utilization=1), FakeGpu()])
    sampler.sample()
    driver.write([FakeGpu(utilization=5), FakeGpu(lost=True)], init_error=999)
    for _ in range(3):
        clock.now_s += 60
        assert sampler.sample()[0][0]["utilization_percent"] == 5


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


def test_a_driver_that_comes_late_is_used(driver: FakeNvml, sampler: GpuSampler, clock: Clock) -> None:
    driver.write([FakeGpu()], init_error=DRIVER_NOT_LOADED)
    assert "not loaded" in sampler.sample()[1]["gpus"]
    driver.write([FakeGpu()])
    clock.now_s += 11
    lines, unavailable = sampler.sample()
    assert (len(lines), unavailable) == (1, {})


def test_mig_slices_are_lines_of_their_own(driver: FakeNvml, sampler: GpuSampler) -> None:
    name = "NVIDIA A100-SXM4-40GB"
    driver.write([FakeGpu(name=name, mig=True, slices=[FakeMig("MIG-a", memory_used=GIB), FakeMig("MIG-b")])])
    (card, first, second), unavailable = sampler.sample()
    assert (card["mig"], first["mig"], second["mig"]) == ("enabled", "1g.5gb", "1g.5gb")
    assert (first["uuid"], first["memory_used_bytes"], first["power_w"]) == ("MIG-a", GIB, None)
    assert "gpus.0.MIG-a.power_w" in unavailable
    assert card["power_w"] == 30.0


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
