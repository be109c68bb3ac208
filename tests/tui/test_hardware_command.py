"""`trainwiz hardware` and `trainwiz doctor` as a user runs them, over a fake driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library


def trainwiz(fake: FakeNvml, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainwiz.tui.cli", *arguments]
    return subprocess.run(command, env=fake.environment(**environment), cwd=folder, capture_output=True, text=True)


def test_hardware_shows_each_card_and_what_it_means(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    turing = FakeGpu(name="Tesla T4", memory_total=15 * GIB, compute_capability="7.5")
    odd = FakeGpu(name="\x1b[31mRTX[/red]")
    fake_nvml.write([FakeGpu(memory_used=GIB), FakeGpu(lost=True), turing, odd])
    done = trainwiz(fake_nvml, tmp_path, "hardware", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert done.returncode == 0, done.stderr
    assert "RTX 3080 10GB, 9.0 GiB of 10.0 GiB free, sm 8.6" in done.stdout
    assert "GPU 1       the GPU is lost" in done.stdout
    assert "fp16: the T4 has compute capability 7.5; bf16 needs 8.0" in done.stdout
    assert "\x1b" not in done.stdout and "RTX[/red]" in done.stdout
    assert "trainwiz hardware --measure" in done.stdout
    document = json.loads(trainwiz(fake_nvml, tmp_path, "hardware", "--json").stdout)
    assert document["gpus"][0]["name"] == "NVIDIA GeForce RTX 3080"
    assert document["disk_path"] == str(tmp_path) and document["rates"] == []
    assert "\x1b" not in trainwiz(fake_nvml, tmp_path, "hardware", CUDA_VISIBLE_DEVICES="\x1b[2J").stdout


def test_a_busy_card_is_not_measured_and_doctor_names_the_cure(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.write([FakeGpu(utilization=97), FakeGpu(lost=True)])
    done = trainwiz(fake_nvml, tmp_path, "hardware", "--measure")
    assert (done.returncode, done.stdout) == (3, "")
    assert "The speed of this machine was not measured: GPU 0 is busy with other work (97%)." in done.stderr
    document = json.loads(trainwiz(fake_nvml, tmp_path, "doctor", "--json").stdout)
    checks = {check["feature"]: check for check in document["checks"]}
    assert checks["driver"]["status"] == checks["bf16"]["status"] == "ok"
    assert checks["gpu_1"]["command"] == "sudo nvidia-smi --gpu-reset -i 1"
    shown = trainwiz(fake_nvml, tmp_path, "doctor")
    assert shown.returncode == 0 and "✓ NVIDIA driver           ok" in shown.stdout
    assert "✗ GPU 1                   missing" in shown.stdout
    assert "sudo nvidia-smi --gpu-reset -i 1" in shown.stdout
