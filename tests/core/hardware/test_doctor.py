"""The doctor: each feature ok or missing, with the command that cures it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.hardware import host
from trainwiz.core.hardware.doctor import Check, can_train, check_machine
from trainwiz.core.hardware.install import NEEDED
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine
from trainwiz.core.hardware.nvml import DRIVER_UPDATED, NO_LIBRARY, NOT_LOADED
from trainwiz.core.hardware.read import Tools, find_tools

from tests.each import each

GIB = 1024**3

ALL = Libraries(dict.fromkeys((*NEEDED, "deepspeed", "flash_attn"), "2.13.0"))
TOOLS = Tools(1, "/usr/bin/g++", "/usr/local/cuda/bin/nvcc", True, "ubuntu")
GOOD = Machine(
    gpus=(Gpu(0, uuid="GPU-a", name="NVIDIA GeForce RTX 3090", compute_capability="8.6", driver="580.65.06"),),
    cpu_cores=12, ram_total_bytes=64 * GIB, ram_available_bytes=60 * GIB, disk_free_bytes=500 * GIB, disk_path="/data",
    accelerator="cuda", shared_memory_bytes=32 * GIB, cuda_driver_version="13.0", torch_cuda="13.0", libraries=ALL,
)  # fmt: skip
NO_CARD = replace(
    GOOD, gpus=(), accelerator="cpu", torch_cuda=None, cuda_driver_version=None,
    unavailable={"gpus": NO_LIBRARY, "torch_cuda": "torch 2.13.0+cpu is a CPU-only build"},
)  # fmt: skip


def check(machine: Machine, feature: str, tools: Tools = TOOLS) -> Check:
    return {one.feature: one for one in check_machine(machine, tools)}[feature]


def card(capability: str) -> Machine:
    return replace(GOOD, gpus=(replace(GOOD.gpus[0], compute_capability=capability),))


def test_a_good_machine_lacks_nothing() -> None:
    checks = check_machine(GOOD, TOOLS)
    assert {one.status for one in checks} == {"ok"}
    assert {"driver", "torch_cuda", "tf32", "bf16", "flash_attention", "deepspeed", "deepspeed_compiler",
            "shared_memory", "disk"} <= {one.feature for one in checks}  # fmt: skip
    assert can_train(checks)
    poor = replace(GOOD, libraries=Libraries({"torch": "2.13.0"}))
    assert check(poor, "libraries").command == "pip install 'trainwiz[train]'"
    assert not can_train(check_machine(poor, TOOLS))


@each(("reason", "tools", "command"), [
    (NO_LIBRARY, TOOLS, "sudo ubuntu-drivers install"),
    (NO_LIBRARY, replace(TOOLS, distribution="debian"), "sudo apt install nvidia-driver"),
    (NO_LIBRARY, replace(TOOLS, distribution="fedora"), "sudo dnf install akmod-nvidia"),
    (NO_LIBRARY, replace(TOOLS, container=True), "docker run --gpus all ..."),
    (NO_LIBRARY, replace(TOOLS, nvidia_cards=0), None),
    (NOT_LOADED, replace(TOOLS, nvidia_cards=0), "sudo modprobe nvidia"),
    (DRIVER_UPDATED, TOOLS, "sudo reboot"),
])  # fmt: skip
def test_the_driver_is_cured_by_its_own_command(reason: str, tools: Tools, command: str | None) -> None:
    driver = check(replace(NO_CARD, unavailable={"gpus": reason}), "driver", tools)
    assert (driver.status, driver.command) == ("missing", command)
    assert reason in driver.reason


@each(("capability", "torch", "cuda", "driver", "status", "command"), [
    ("8.6", "2.13.0", "13.0", "13.0", "ok", None),
    ("8.6", "2.13.0", "13.0", "12.4", "missing", "cu126"),
    ("7.0", "2.13.0", "12.8", "12.8", "missing", "cu126"),
    ("7.0", "2.10.0", "12.8", "12.8", "ok", None),
    ("6.0", "2.10.0", "12.8", "12.8", "missing", "cu126"),
    ("12.0", "2.6.0", "12.4", "13.0", "missing", "torch==2.6.0"),
])  # fmt: skip
def test_the_build_of_torch_must_know_card_and_driver(
    capability: str, torch: str, cuda: str, driver: str, status: str, command: str | None
) -> None:
    libraries = Libraries(ALL.versions | {"torch": torch})
    machine = replace(card(capability), torch_cuda=cuda, cuda_driver_version=driver, libraries=libraries)
    found = check(machine, "torch_cuda")
    assert found.status == status
    assert found.command is None if command is None else command in (found.command or "")


HIDDEN = replace(GOOD.gpus[0], visible=False)
SMALL_SHM = replace(GOOD, shared_memory_bytes=64 * 1024**2)


@each(("machine", "tools", "feature", "status", "said"), [
    (replace(NO_CARD, wsl=True), replace(TOOLS, nvidia_cards=0), "driver", "missing", "in Windows"),
    (replace(GOOD, torch_cuda=None, unavailable=NO_CARD.unavailable), TOOLS, "torch_cuda", "missing",
     "pip install --force-reinstall torch==2.13.0"),
    (NO_CARD, replace(TOOLS, nvidia_cards=0), "torch_cuda", "missing", "can train without it. None"),
    *((card("7.5"), TOOLS, feature, "missing", "compute capability 7.5;") for feature in ("bf16", "tf32", "flash_attention")),
    (replace(GOOD, libraries=Libraries(ALL.versions | {"flash_attn": None})), TOOLS, "flash_attention", "missing",
     "pip install flash-attn --no-build-isolation"),
    *((GOOD, Tools(1, None, None, False, "debian"), "deepspeed_compiler", "missing", part)
      for part in ("g++", "Python.h", "nvcc", "sudo apt install g++ python3-dev")),
    (replace(GOOD, torch_cuda=None), replace(TOOLS, nvcc=None), "deepspeed_compiler", "ok", "g++"),
    (replace(GOOD, gpus=(HIDDEN,), accelerator="cpu", cuda_visible_devices=""), TOOLS, "gpus", "missing",
     "unset CUDA_VISIBLE_DEVICES"),
    (SMALL_SHM, replace(TOOLS, container=True), "shared_memory", "warning", "docker run --shm-size=8g ..."),
    (SMALL_SHM, TOOLS, "shared_memory", "warning", "0.1 GiB"),
    *((replace(GOOD, disk_free_bytes=free), TOOLS, "disk", status, "free at /data")
      for free, status in ((500 * GIB, "ok"), (5 * GIB, "warning"), (100 * 1024**2, "missing"))),
])  # fmt: skip
def test_each_finding(machine: Machine, tools: Tools, feature: str, status: str, said: str) -> None:
    found = check(machine, feature, tools)
    assert found.status == status
    assert said in f"{found.reason} {found.remedy} {found.command}"
    assert can_train(check_machine(machine, tools)) is (feature != "disk" or status != "missing")


def test_tools_of_a_bare_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ROOT", tmp_path)
    for vendor, kind in (("0x10de", "0x030000"), ("0x10de", "0x040300"), ("0x1002", "0x030000")):
        device = tmp_path / "sys/bus/pci/devices" / f"{vendor}-{kind}"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Fedora Linux"\nID=fedora\nVERSION_ID=42\n')
    (tmp_path / ".dockerenv").touch()
    tools = find_tools()
    assert tools.nvidia_cards == 1, "the sound device of a card is not a card"
    assert (tools.distribution, tools.container) == ("fedora", True)
    assert tools.install("g++", "gcc-c++", "gcc") == "sudo dnf install gcc-c++"
    assert replace(tools, distribution="arch").install("g++", "gcc-c++", "gcc") == "sudo pacman -S gcc"
