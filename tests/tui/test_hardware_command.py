"""`trainwiz hardware` and `trainwiz doctor` as a user runs them, over a fake driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.tui.cli import main

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml


def test_hardware_shows_each_card_and_what_it_means(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    turing = FakeGpu(name="Tesla T4", memory_total=15 * GIB, compute_capability="7.5")
    odd = FakeGpu(name="\x1b[31mRTX[/red]")
    fake_nvml.write([FakeGpu(memory_used=GIB), FakeGpu(lost=True), turing, odd])
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui.cli", "hardware"], env=fake_nvml.environment(CUDA_DEVICE_ORDER="PCI_BUS_ID"),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "RTX 3080 10GB, 9.0 GiB of 10.0 GiB free, sm 8.6" in done.stdout
    assert "GPU 1       the GPU is lost" in done.stdout
    assert "fp16: the T4 has compute capability 7.5; bf16 needs 8.0" in done.stdout
    assert "\x1b" not in done.stdout and "RTX[/red]" in done.stdout
    assert "trainwiz hardware --measure" in done.stdout


def test_a_busy_card_is_not_measured_and_doctor_names_the_cure(
    fake_nvml: FakeNvml, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.load_here(monkeypatch)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml.library_folder))
    fake_nvml.write([FakeGpu(utilization=97), FakeGpu(lost=True)])

    def said(code: int, *words: str) -> str:
        assert main(words) == code
        return "".join(capsys.readouterr())

    document = json.loads(said(0, "hardware", "--json"))
    assert document["gpus"][0]["name"] == "NVIDIA GeForce RTX 3080"
    assert document["disk_path"] == str(here) and document["rates"] == []
    busy = "The speed of this machine was not measured: GPU 0 is busy with other work (97%)."
    assert busy in said(3, "hardware", "--measure")
    checks = {check["feature"]: check for check in json.loads(said(0, "doctor", "--json"))["checks"]}
    assert checks["driver"]["status"] == checks["bf16"]["status"] == "ok"
    shown = said(0, "doctor")
    assert "✓ NVIDIA driver           ok" in shown and "✗ GPU 1                   missing" in shown
    assert "sudo nvidia-smi --gpu-reset -i 1" in shown
    assert "· FlashAttention-2        missing" in shown, "sdpa does as well: nothing is wrong"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "\x1b[2J")
    assert "\x1b" not in said(0, "hardware")
