"""What this hardware should run with: precision, attention and TF32, each with its reason.

The compute capability decides, never torch's own answer: `torch.cuda.is_bf16_supported()` counts
emulation and says yes on Turing.
"""

from __future__ import annotations

from trainwiz.core.hardware.apple import BF16_MACOS, version_tuple
from trainwiz.core.hardware.describe import gpu_label
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.language import tr

AMPERE = (8, 0)
"""First capability with bf16 and TF32 tensor cores, and the first that FlashAttention-2 supports."""

FIRST_HALF = (5, 3)
"""First capability that computes in fp16."""


def choose_precision(machine: Machine) -> tuple[str, str]:
    """("bf16" | "fp16" | "fp32", reason)."""
    if machine.accelerator == "mps":
        if version_tuple(machine.os_version) >= BF16_MACOS:
            return "bf16", tr("macOS {os_version} computes in bf16 on its GPU", os_version=machine.os_version)
        version = machine.os_version or tr("unknown")
        return "fp32", tr("bf16 on an Apple GPU needs macOS 14, this is {version}", version=version)
    if machine.accelerator == "cpu":
        return "fp32", _on_a_cpu(machine.cpu_bf16)
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return "fp32", _capability_unknown(gpu)
    if gpu.capability >= AMPERE:
        return "bf16", tr("{card} has sm {capability}, bf16 needs 8.0", **_facts(gpu))
    if gpu.capability >= FIRST_HALF:
        return "fp16", tr("{card} has sm {capability}, bf16 needs 8.0", **_facts(gpu))
    return "fp32", tr("{card} has sm {capability}, fp16 needs 5.3", **_facts(gpu))


def _on_a_cpu(has_bf16: bool | None) -> str:
    """bf16 took 1 / 2.3 of the time of fp32 on a processor with avx512_bf16 (esm2-8m, 20 x 512), more on those without."""
    if has_bf16:
        return tr("a CPU; this one has instructions for bf16 too, and trainwiz bench --choose measures what they gain")
    if has_bf16 is False:
        return tr("a CPU without instructions for bf16, where half precision is slower")
    return tr("a CPU computes in fp32; trainwiz bench --choose measures whether bf16 is faster")


def choose_attention(machine: Machine) -> tuple[str, str]:
    """("flash_attention_2" | "sdpa", reason). FlashAttention-2 also wants half precision, which such cards get."""
    if machine.accelerator != "cuda":
        if machine.accelerator == "mps":
            return "sdpa", tr("FlashAttention-2 needs an NVIDIA GPU, this trains on an Apple GPU")
        return "sdpa", tr("FlashAttention-2 needs an NVIDIA GPU, this trains on the CPU")
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return "sdpa", _capability_unknown(gpu)
    if gpu.capability < AMPERE:
        return "sdpa", tr("{card} has sm {capability}, FlashAttention-2 needs 8.0", **_facts(gpu))
    if machine.libraries.has("flash_attn"):
        return (
            "flash_attention_2",
            tr(
                "flash-attn {version} is installed, sm is {capability}",
                version=machine.libraries.versions["flash_attn"],
                capability=gpu.compute_capability,
            ),
        )
    if machine.hypothetical:
        return "sdpa", tr("whether flash-attn is installed there is not known; sdpa always works")
    return "sdpa", tr("flash-attn is not installed; sdpa has its own flash kernel")


def choose_tf32(machine: Machine) -> tuple[bool, str]:
    """(use TF32 for what stays in fp32, reason)."""
    if machine.accelerator != "cuda":
        if machine.accelerator == "mps":
            return False, tr("TF32 needs an NVIDIA GPU, this trains on an Apple GPU")
        return False, tr("TF32 needs an NVIDIA GPU, this trains on the CPU")
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return False, _capability_unknown(gpu)
    return gpu.capability >= AMPERE, tr("{card} has sm {capability}, TF32 needs 8.0", **_facts(gpu))


def weakest_gpu(machine: Machine) -> Gpu | None:
    """The visible card with the lowest capability (all ranks run the same program); one that is unknown counts as lowest."""
    return min(machine.visible_gpus, key=lambda gpu: gpu.capability or (0, 0), default=None)


def _facts(gpu: Gpu) -> dict[str, str | None]:
    """What a sentence about the card names."""
    return {"card": tr("the {gpu}", gpu=gpu_label(gpu)), "capability": gpu.compute_capability}


def _capability_unknown(gpu: Gpu | None) -> str:
    if gpu is None:
        return tr("no GPU is visible")
    card, why = tr("the {gpu}", gpu=gpu_label(gpu)), gpu.unavailable.get("compute_capability")
    if why:
        return tr("the capability of {card} is not known ({reason})", card=card, reason=why)
    return tr("the capability of {card} is not known", card=card)
