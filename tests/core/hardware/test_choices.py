"""Precision, attention and TF32 by capability, and Apple's GPUs, each with a reason."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.hardware.host import apple_gpu
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32

from tests.each import each

WITH_FLASH = Libraries({"flash_attn": "2.8.3"})


def cuda(*capabilities: str | None, libraries: Libraries | None = None) -> Machine:
    gpus = tuple(Gpu(index, name="card", compute_capability=one) for index, one in enumerate(capabilities))
    return Machine(gpus=gpus, accelerator="cuda", libraries=libraries or Libraries())


@each(
    ("capability", "precision"),
    [("5.2", "fp32"), ("6.0", "fp16"), ("7.5", "fp16"), ("8.0", "bf16"), ("12.0", "bf16"), (None, "fp32")],
)  # fmt: skip
def test_precision_follows_the_capability(capability: str | None, precision: str) -> None:
    value, reason = choose_precision(cuda(capability))
    assert value == precision
    assert (capability or "unknown") in reason
    assert choose_tf32(cuda(capability))[0] is (precision == "bf16")


def test_the_weakest_visible_card_decides() -> None:
    mixed = cuda("8.6", "7.5")
    hidden = replace(mixed, gpus=(mixed.gpus[0], replace(mixed.gpus[1], visible=False)))
    assert [choose_precision(one)[0] for one in (mixed, cuda("8.6", None), hidden)] == ["fp16", "fp32", "bf16"]


@each(("version", "precision"), [("14.0", "bf16"), ("15.2.1", "bf16"), ("13.6", "fp32"), (None, "fp32"), ("x", "fp32")])
def test_precision_on_apple_follows_macos(version: str | None, precision: str) -> None:
    machine = Machine(gpus=(Gpu(0, name="Apple M2 Max"),), accelerator="mps", os_version=version)
    assert choose_precision(machine)[0] == precision
    assert choose_attention(machine)[0] == "sdpa"
    assert choose_tf32(machine)[0] is False


@each(
    ("capability", "libraries", "attention"),
    [
        ("8.0", WITH_FLASH, "flash_attention_2"),
        ("7.5", WITH_FLASH, "sdpa"),
        (None, WITH_FLASH, "sdpa"),
        ("8.6", Libraries({"flash_attn": None}), "sdpa"),
    ],
)
def test_attention_needs_capability_and_library(capability: str | None, libraries: Libraries, attention: str) -> None:
    value, reason = choose_attention(cuda(capability, libraries=libraries))
    assert value == attention and reason


GIB = 1024**3


def test_apples_gpus() -> None:
    gpu, reason = apple_gpu("arm64", "14.5", "Apple M2 Max", 64 * GIB, 40 * GIB)
    assert reason is None and gpu is not None
    assert (gpu.name, gpu.catalogue_name, gpu.capability) == ("Apple M2 Max", "Apple M2 Max", None)
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (48 * GIB, 40 * GIB)
    for machine, macos, why in (("x86_64", "14.5", "for Intel"), ("arm64", "12.2", "needs macOS 12.3, this is 12.2")):
        gpu, reason = apple_gpu(machine, macos, "Apple M1", 16 * GIB, 8 * GIB)
        assert gpu is None and why in str(reason)
