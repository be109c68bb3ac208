"""GpuLoads over the fake driver: the figures that a GPU is chosen by, and cards that come and go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.hardware.gpus import read_gpus
from trainwiz.core.telemetry.gpu import GpuSampler, LoadReader, free_bytes, is_outdated

from tests.fakes.nvml import DRIVER_NOT_LOADED, GIB, FakeGpu, FakeMig, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


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
