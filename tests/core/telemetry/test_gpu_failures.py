"""GpuSampler where several things fail at once, in as many ways as drivers have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.telemetry.gpu import SENSORS, GpuSampler

from tests.fakes.nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_LOST,
    NO_PERMISSION,
    RESET_REQUIRED,
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


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


@pytest.fixture
def sampler(driver: FakeNvml) -> Any:
    one = GpuSampler()
    yield one
    one.close()


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


def test_a_card_that_needs_a_reset_is_gone_as_a_whole(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(failing={"util": RESET_REQUIRED}), FakeGpu(utilization=5)])
    (sick, well), unavailable = sampler.sample()
    assert sick["memory_used_bytes"] is None
    assert unavailable == {"gpus.0": "the GPU needs a reset"}
    assert well["utilization_percent"] == 5


def test_processes_of_unknown_size_are_still_processes(driver: FakeNvml, sampler: GpuSampler) -> None:
    driver.write([FakeGpu(processes={os.getpid(): GIB}, process_memory_unknown=True)])
    (line,), _ = sampler.sample()
    (process,) = line["processes"]
    assert (process["pid"], process["memory_used_bytes"]) == (os.getpid(), None)


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


def test_without_a_library_there_is_one_reason(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """A fresh interpreter whose search path holds a library that is none."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    done = fake_nvml.run_python(
        "from trainwiz.core.telemetry.gpu import GpuSampler; import json; print(json.dumps(GpuSampler().sample()))",
        LD_LIBRARY_PATH=str(tmp_path),
    )
    lines, unavailable = json.loads(done.stdout)
    assert lines == []
    assert "driver" in unavailable["gpus"]
