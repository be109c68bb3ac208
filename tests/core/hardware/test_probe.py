"""Probing through the real nvidia-ml-py, over a fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware import nvml
from trainwiz.core.hardware.nvml import read_gpus
from trainwiz.core.hardware.read import probe_machine

from tests.each import each
from tests.fakes.nvml import DRIVER_NOT_LOADED, GIB, MIB, VERSION_MISMATCH, FakeGpu, FakeMig, FakeNvml

A100 = "NVIDIA A100-SXM4-40GB"


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


def probe(**environment: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(probe_machine(environment=environment).to_json()))
    return document


def test_one_card_is_read_whole(driver: FakeNvml) -> None:
    driver.write([FakeGpu(memory_used=1 * GIB, memory_reserved=220 * MIB)], driver="535.129.03", cuda=12020)
    machine = probe()
    (gpu,) = machine["gpus"]
    sizes = {"total": 10 * GIB, "free": 9 * GIB - 220 * MIB, "other": 1 * GIB}
    assert {name: gpu[f"memory_{name}_bytes"] for name in sizes} == sizes
    assert gpu["uuid"] == "GPU-00000000-0000-0000-0000-000000000000"
    assert (gpu["compute_capability"], gpu["driver"], gpu["catalogue_name"]) == ("8.6", "535.129.03", "RTX 3080 10GB")
    assert (gpu["visible"], gpu["cuda_index"], gpu["mig"]) == (True, 0, None)
    assert (machine["accelerator"], machine["cuda_driver_version"]) == ("cuda", "12.2")


@each(
    ("cards", "code", "words"),
    [
        (0, 0, "the NVIDIA driver works but finds no GPU"),
        (1, DRIVER_NOT_LOADED, "not loaded"), (1, VERSION_MISMATCH, "updated"),
    ],
)  # fmt: skip
def test_without_a_card_to_use_there_is_a_reason(driver: FakeNvml, cards: int, code: int, words: str) -> None:
    driver.write([FakeGpu()] * cards, init_error=code)
    machine = probe()
    assert (machine["gpus"], machine["accelerator"]) == ([], "cpu")
    assert words in machine["unavailable"]["gpus"]


def test_a_lost_card_leaves_the_others_and_unsupported_fields_are_null(driver: FakeNvml) -> None:
    other = FakeGpu(name="NVIDIA GeForce RTX 3080", memory_total=20 * GIB)
    driver.write([FakeGpu(), FakeGpu(lost=True), other, FakeGpu(unsupported=["memory", "cc", "uuid"])])
    machine = probe()
    first, lost, last, poor = machine["gpus"]
    assert "lost" in lost["unavailable"]["gpu"] and "lost" in machine["unavailable"]["gpus.1"]
    assert (lost["index"], lost["visible"], lost["memory_total_bytes"]) == (1, False, None)
    assert (first["memory_total_bytes"], last["memory_total_bytes"]) == (10 * GIB, 20 * GIB)
    assert last["catalogue_name"] == "RTX 3080 20GB"
    assert first["links"][0] == "GPU2: one PCIe host bridge"
    for name in ("memory_total_bytes", "memory_free_bytes", "compute_capability", "uuid"):
        assert (poor["visible"], poor[name], poor["unavailable"][name]) == (True, None, "this GPU does not report it")


def test_a_gpu_that_shares_the_ram_has_what_there_is_of_it(driver: FakeNvml) -> None:
    driver.write([FakeGpu(name="NVIDIA GB10", unsupported=["memory"])])
    machine = probe()
    (gpu,) = machine["gpus"]
    assert (gpu["catalogue_name"], gpu["unified"]) == ("GB10", True)
    assert gpu["memory_total_bytes"] == machine["ram_total_bytes"]
    assert gpu["memory_free_bytes"] == max(0, machine["ram_available_bytes"] - 4 * GIB)
    assert not {"memory_total_bytes", "memory_free_bytes"} & set(gpu["unavailable"])


def test_links_of_cards(driver: FakeNvml) -> None:
    driver.write([FakeGpu(name="NVIDIA H100 80GB HBM3", nvlinks={"switch": 18}, socket=n // 4) for n in range(8)])
    machine = probe()
    assert machine["gpus"][0]["links"] == [f"GPU{n}: NVLink x18 through NVSwitch" for n in range(1, 8)]
    assert [gpu["cuda_index"] for gpu in machine["gpus"]] == list(range(8))
    driver.write([FakeGpu(nvlinks={1: 4}), FakeGpu(nvlinks={0: 4}), FakeGpu(socket=1)])
    hidden = probe(CUDA_VISIBLE_DEVICES="")
    assert hidden["gpus"][0]["links"] == ["GPU1: NVLink x4", "GPU2: between CPU sockets"]
    assert (hidden["accelerator"], hidden["cuda_visible_devices"]) == ("cpu", ""), "hidden cards are listed, not used"


def test_mig_slices_follow_their_card(driver: FakeNvml) -> None:
    slices = [
        FakeMig("MIG-11111111", gpu_instance=7),
        FakeMig("MIG-22222222", name=f"{A100} MIG 2c.3g.20gb", memory_total=19968 * MIB, gpu_instance=2, graphics_slices=3,
                compute_slices=2),
    ]  # fmt: skip
    whole = FakeGpu(name=A100, compute_capability="8.0", memory_total=40 * GIB, mig=False)
    driver.write([FakeGpu(name=A100, compute_capability="8.0", memory_total=40 * GIB, mig=True, slices=slices), whole])
    machine, by_name = probe(), probe(CUDA_VISIBLE_DEVICES="MIG-2222")
    card, first, *_ = machine["gpus"]
    assert [gpu["mig"] for gpu in machine["gpus"]] == ["enabled", "1g.5gb", "2c.3g.20gb", "disabled"]
    assert (first["parent_uuid"], first["memory_total_bytes"]) == (card["uuid"], 4864 * MIB)
    assert [gpu["visible"] for gpu in machine["gpus"]] == [False, True, False, False]
    assert [gpu["visible"] for gpu in by_name["gpus"]] == [False, False, True, False]
    assert "one MIG slice" in machine["notes"][0]


def test_disk_is_that_of_the_nearest_existing_folder(tmp_path: Path) -> None:
    machine = probe_machine(tmp_path / "runs" / "not-yet" / "made", environment={})
    stat = os.statvfs(tmp_path)
    assert machine.disk_free_bytes == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.05)
    assert machine.disk_path == str(tmp_path / "runs" / "not-yet" / "made")
    assert not (tmp_path / "runs").exists()


def test_a_driver_that_hangs_is_left_alone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []

    def hang() -> None:
        asked.append("nvmlInit")
        over.wait(600)
        asked.append("answered")

    monkeypatch.setattr(nvml.pynvml, "nvmlInit", hang)
    monkeypatch.setattr(nvml, "ANSWER_S", 0.2)
    monkeypatch.setattr(nvml, "_hangs", False)
    assert read_gpus().unavailable == {"gpus": "the driver did not respond in time"}
    # The look at the loads would wait for ever too.
    with nvml.NvmlSession() as session:
        assert session.error == "the driver did not respond in time"
    assert asked == ["nvmlInit"], "asked once, and not waited for"
    over.set()


LOOK = """
import importlib, json, sys
from trainwiz.core.hardware.machine import find_libraries, torch_cuda_version
answers = []
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    found = find_libraries().versions
    answers.append([found["torch"], found["flash_attn"], *torch_cuda_version()])
print(json.dumps(answers))
assert not {"torch", "flash_attn"} & set(sys.modules)
"""
BUILDS = {
    "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n": ["13.0", None],
    "__version__ = '2.1.0'\ncuda = '12.1'\nhip = None\n": ["12.1", None],
    "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n": [None, "torch 2.13.0+cpu is a CPU-only build"],
    "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n":
        [None, "torch 2.9.0+rocm6.4 is built for AMD GPUs (ROCm 6.4)"],
    "": [None, "torch unknown is a CPU-only build"],
}  # fmt: skip
"""Text of torch/version.py -> what is read from it."""


def test_the_build_of_torch_is_read_from_its_text(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(BUILDS))]
    for folder, text in zip(folders, BUILDS, strict=True):
        for name in ("torch", "flash_attn"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')\n")
        (folder / "torch/version.py").write_text(text)
    done = subprocess.run([sys.executable, "-c", LOOK, *map(str, folders)], capture_output=True, text=True, check=True)
    for (torch, flash, *build), expected in zip(json.loads(done.stdout), BUILDS.values(), strict=True):
        assert build == expected and torch is not None
        assert flash == "unknown", "importable, and no metadata says its version"
