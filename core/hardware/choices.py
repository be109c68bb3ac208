"""What this hardware should run with: precision, attention and TF32, each with its reason.

The compute capability decides, never torch's own answer: `torch.cuda.is_bf16_supported()` counts
emulation and says yes on Turing.
"""

from __future__ import annotations

from trainwiz.core.hardware.apple import BF16_MACOS, version_tuple
from trainwiz.core.hardware.describe import gpu_label
from trainwiz.core.hardware.machine import Gpu, Machine

AMPERE = (8, 0)
"""First capability with bf16 and TF32 tensor cores, and the first that FlashAttention-2 supports."""

FIRST_HALF = (5, 3)
"""First capability that computes in fp16."""


def choose_precision(machine: Machine) -> tuple[str, str]:
    """("bf16" | "fp16" | "fp32", reason)."""
    if machine.accelerator == "mps":
        if version_tuple(machine.os_version) >= BF16_MACOS:
            return "bf16", f"macOS {machine.os_version} computes in bf16 on its GPU"
        return "fp32", f"bf16 on an Apple GPU needs macOS 14, this is {machine.os_version or 'unknown'}"
    if machine.accelerator == "cpu":
        return "fp32", "a CPU trains in fp32; half precision is slower there"
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return "fp32", _capability_unknown(gpu)
    if gpu.capability >= AMPERE:
        return "bf16", f"{_card(gpu)} has sm {gpu.compute_capability}, bf16 needs 8.0"
    if gpu.capability >= FIRST_HALF:
        return "fp16", f"{_card(gpu)} has sm {gpu.compute_capability}, bf16 needs 8.0"
    return "fp32", f"{_card(gpu)} has sm {gpu.compute_capability}, fp16 needs 5.3"


def choose_attention(machine: Machine) -> tuple[str, str]:
    """("flash_attention_2" | "sdpa", reason). FlashAttention-2 also wants half precision, which such cards get."""
    if machine.accelerator != "cuda":
        return "sdpa", f"FlashAttention-2 needs an NVIDIA GPU, this trains on {_device_word(machine)}"
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return "sdpa", _capability_unknown(gpu)
    if gpu.capability < AMPERE:
        return "sdpa", f"{_card(gpu)} has sm {gpu.compute_capability}, FlashAttention-2 needs 8.0"
    if machine.libraries.has("flash_attn"):
        return (
            "flash_attention_2",
            f"flash-attn {machine.libraries.versions['flash_attn']} is installed, sm is {gpu.compute_capability}",
        )
    if machine.hypothetical:
        return "sdpa", "whether flash-attn is installed there is not known; sdpa always works"
    return "sdpa", "flash-attn is not installed; sdpa has its own flash kernel"


def choose_tf32(machine: Machine) -> tuple[bool, str]:
    """(use TF32 for what stays in fp32, reason)."""
    if machine.accelerator != "cuda":
        return False, f"TF32 needs an NVIDIA GPU, this trains on {_device_word(machine)}"
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return False, _capability_unknown(gpu)
    if gpu.capability >= AMPERE:
        return True, f"{_card(gpu)} has sm {gpu.compute_capability}, TF32 needs 8.0"
    return False, f"{_card(gpu)} has sm {gpu.compute_capability}, TF32 needs 8.0"


def weakest_gpu(machine: Machine) -> Gpu | None:
    """The visible card with the lowest capability (all ranks run the same program); one that is unknown counts as lowest."""
    return min(machine.visible_gpus, key=lambda gpu: gpu.capability or (0, 0), default=None)


def _card(gpu: Gpu) -> str:
    return f"the {gpu_label(gpu)}"


def _device_word(machine: Machine) -> str:
    return "an Apple GPU" if machine.accelerator == "mps" else "the CPU"


def _capability_unknown(gpu: Gpu | None) -> str:
    if gpu is None:
        return "no GPU is visible"
    why = gpu.unavailable.get("compute_capability")
    return f"the capability of {_card(gpu)} is not known" + (f" ({why})" if why else "")
