"""The doctor: each feature ok or missing, with the command that cures it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.hardware.doctor import NEEDED, Check, can_train, check_machine
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine
from trainwiz.core.hardware.nvml import DRIVER_UPDATED, NO_LIBRARY, NOT_LOADED
from trainwiz.core.hardware.read import Tools, find_tools

from tests.each import each

GIB = 1024**3

ALL = Libraries(dict.fromkeys((*NEEDED, "deepspeed", "flash_attn"), "2.13.0"))
TOOLS = Tools(1, "/usr/bin/g++", "/usr/bin/ninja", "/usr/local/cuda/bin/nvcc", True, "ubuntu")
GOOD = Machine(
    gpus=(Gpu(0, uuid="GPU-a", name="NVIDIA GeForce RTX 3090", compute_capability="8.6", driver="580.65.06"),),
    cpu_cores=12,
    ram_total_bytes=64 * GIB,
    ram_available_bytes=60 * GIB,
    disk_free_bytes=500 * GIB,
    disk_path="/data",
    accelerator="cuda",
    shared_memory_bytes=32 * GIB,
    cuda_driver_version="13.0",
    torch_cuda="13.0",
    libraries=ALL,
)
NO_CARD = replace(
    GOOD, gpus=(), accelerator="cpu", torch_cuda=None, cuda_driver_version=None,
    unavailable={"gpus": NO_LIBRARY, "torch_cuda": "torch 2.13.0+cpu is built for the CPU only"},
)  # fmt: skip


def check(machine: Machine, feature: str, tools: Tools = TOOLS) -> Check:
    return {one.feature: one for one in check_machine(machine, tools)}[feature]


def card(capability: str) -> Machine:
    return replace(GOOD, gpus=(replace(GOOD.gpus[0], compute_capability=capability),))


def test_a_good_machine_lacks_nothing() -> None:
    checks = check_machine(GOOD, TOOLS)
    assert {one.status for one in checks} == {"ok"}
    assert {"driver", "torch_cuda", "tf32", "bf16", "flash_attention", "deepspeed", "deepspeed_compiler",
            "shared_memory", "disk", "ram"} <= {one.feature for one in checks}  # fmt: skip
    assert can_train(checks)


def test_what_is_missing_says_why_and_what_to_do() -> None:
    poor = replace(NO_CARD, libraries=Libraries(dict.fromkeys(NEEDED, "1")), shared_memory_bytes=64 * 1024**2)
    for one in check_machine(poor, replace(TOOLS, nvidia_cards=0)):
        assert one.reason
        if one.status != "ok":
            assert one.remedy or one.command, one.feature


@each(
    ("reason", "tools", "command"),
    [
        (NO_LIBRARY, TOOLS, "sudo ubuntu-drivers install"),
        (NO_LIBRARY, replace(TOOLS, distribution="debian"), "sudo apt install nvidia-driver"),
        (NO_LIBRARY, replace(TOOLS, distribution="fedora"), "sudo dnf install akmod-nvidia"),
        (NO_LIBRARY, replace(TOOLS, container=True), "docker run --gpus all ..."),
        (NO_LIBRARY, replace(TOOLS, nvidia_cards=0), None),
        (NOT_LOADED, replace(TOOLS, nvidia_cards=0), "sudo modprobe nvidia"),
        (DRIVER_UPDATED, TOOLS, "sudo reboot"),
    ],
)
def test_the_driver_is_cured_by_its_own_command(reason: str, tools: Tools, command: str | None) -> None:
    driver = check(replace(NO_CARD, unavailable={"gpus": reason}), "driver", tools)
    assert (driver.status, driver.command) == ("missing", command)
    assert reason in driver.reason


def test_wsl_gets_its_driver_in_windows() -> None:
    driver = check(replace(NO_CARD, wsl=True), "driver", replace(TOOLS, nvidia_cards=0))
    assert driver.remedy is not None
    assert "in Windows" in driver.remedy


@each(
    ("capability", "torch", "cuda", "driver", "status", "command"),
    [
        ("8.6", "2.13.0", "13.0", "13.0", "ok", None),
        ("8.6", "2.13.0", "12.8", "12.4", "ok", None),
        ("8.6", "2.13.0", "13.0", "12.4", "missing", "cu126"),
        ("7.0", "2.13.0", "13.0", "13.0", "missing", "cu126"),
        ("7.0", "2.13.0", "12.8", "12.8", "missing", "cu126"),
        ("7.0", "2.10.0", "12.8", "12.8", "ok", None),
        ("6.0", "2.10.0", "12.8", "12.8", "missing", "cu126"),
        ("7.0", "2.13.0", "12.6", "13.0", "ok", None),
        ("12.0", "2.6.0", "12.4", "13.0", "missing", "torch==2.6.0"),
    ],
)
def test_the_build_of_torch_must_know_card_and_driver(
    capability: str, torch: str, cuda: str, driver: str, status: str, command: str | None
) -> None:
    libraries = Libraries(ALL.versions | {"torch": torch})
    machine = replace(card(capability), torch_cuda=cuda, cuda_driver_version=driver, libraries=libraries)
    found = check(machine, "torch_cuda")
    assert found.status == status
    assert found.command is None if command is None else command in (found.command or "")


def test_a_cpu_build_beside_a_card_gets_the_cuda_build() -> None:
    machine = replace(GOOD, torch_cuda=None, unavailable=NO_CARD.unavailable)
    assert check(machine, "torch_cuda").command == "python3 -m pip install --force-reinstall torch==2.13.0"
    no_card = check(NO_CARD, "torch_cuda", replace(TOOLS, nvidia_cards=0))
    assert (no_card.status, no_card.command) == ("missing", None)


def test_turing_has_neither_bf16_nor_tf32_nor_flash_attention() -> None:
    for feature in ("bf16", "tf32", "flash_attention"):
        found = check(card("7.5"), feature)
        assert (found.status, found.command) == ("missing", None)
        assert "sm 7.5" in found.reason


def test_flash_attention_that_could_be_installed() -> None:
    machine = replace(GOOD, libraries=Libraries(ALL.versions | {"flash_attn": None}))
    assert check(machine, "flash_attention").command == "python3 -m pip install flash-attn --no-build-isolation"


def test_every_part_of_the_compiler_is_named_at_once() -> None:
    bare = Tools(1, None, None, None, False, "debian")
    found = check(GOOD, "deepspeed_compiler", bare)
    for part in ("g++", "Python.h", "ninja", "nvcc"):
        assert part in found.reason
    assert found.command is not None
    assert "sudo apt install g++" in found.command
    assert check(replace(GOOD, torch_cuda=None), "deepspeed_compiler", replace(TOOLS, nvcc=None)).status == "ok"


def test_a_lost_card_and_a_hidden_one() -> None:
    lost = Gpu(1, visible=False, unavailable={"gpu": "the GPU is lost"})
    assert check(replace(GOOD, gpus=(*GOOD.gpus, lost)), "gpu_1").command == "sudo nvidia-smi --gpu-reset -i 1"
    hidden = replace(GOOD, gpus=(replace(GOOD.gpus[0], visible=False),), accelerator="cpu", cuda_visible_devices="")
    assert check(hidden, "gpus").command == "unset CUDA_VISIBLE_DEVICES"


def test_docker_s_shared_memory_is_too_small() -> None:
    small = replace(GOOD, shared_memory_bytes=64 * 1024**2)
    assert check(small, "shared_memory", replace(TOOLS, container=True)).command == "docker run --shm-size=8g ..."
    found = check(small, "shared_memory")
    assert found.status == "warning"
    assert "64 MiB" in found.reason


@pytest.mark.parametrize(("free", "status"), [(500 * GIB, "ok"), (5 * GIB, "warning"), (100 * 1024**2, "missing")])
def test_disk(free: int, status: str) -> None:
    machine = replace(GOOD, disk_free_bytes=free)
    assert check(machine, "disk").status == status
    assert can_train(check_machine(machine, TOOLS)) is (status != "missing")


@pytest.mark.parametrize(
    ("total", "available", "status"), [(64, 60, "ok"), (12, 11, "warning"), (64, 2, "warning")]
)  # fmt: skip
def test_ram(total: int, available: int, status: str) -> None:
    machine = replace(GOOD, ram_total_bytes=total * GIB, ram_available_bytes=available * GIB)
    assert check(machine, "ram").status == status


def test_missing_libraries_stop_everything() -> None:
    machine = replace(GOOD, libraries=Libraries({"torch": "2.13.0"}))
    found = check(machine, "libraries")
    assert found.command == "python3 -m pip install transformers accelerate datasets tokenizers safetensors"
    assert not can_train(check_machine(machine, TOOLS))


def test_the_package_that_torch_warns_about() -> None:
    assert check(GOOD, "nvml_package", replace(TOOLS, superseded_pynvml="12.0.0")).status == "warning"


def test_tools_of_a_bare_computer(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("00", "0x10de", "0x030000"),
        ("01", "0x10de", "0x040300"),
        ("02", "0x1002", "0x030000"),
    ):
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Fedora Linux"\nID=fedora\nVERSION_ID=42\n')
    (tmp_path / ".dockerenv").touch()
    tools = find_tools(tmp_path)
    assert tools.nvidia_cards == 1, "the sound device of a card is not a card"
    assert (tools.distribution, tools.container) == ("fedora", True)
    assert tools.install("g++", "gcc-c++") == "sudo dnf install gcc-c++"
    assert replace(tools, distribution="arch").install("g++", "gcc-c++", "gcc") == "sudo pacman -S gcc"
