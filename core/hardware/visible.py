"""Which GPUs a program started here would see, and what this hardware should run with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.hardware.host import BF16_MACOS, version_tuple
from trainwiz.core.hardware.machine import Gpu, Machine, gpu_label
from trainwiz.core.language import tr

# Which GPUs a program started here would see, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
#
# The rules are CUDA's, as torch mirrors them in `torch.cuda._parse_visible_devices`: indexes are read
# like strtoul ("1gpu" is 1); the first entry that names no device ends the list; a device named twice
# before that hides them all; UUIDs may be shortened as long as they stay unique. With MIG, one process sees one slice
# and no whole card beside it (MIG user guide, "CUDA device enumeration").

VARIABLE = "CUDA_VISIBLE_DEVICES"


def mark_visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """`gpus` (cards in NVML's order, slices after their card) with `visible` and `cuda_index` set, and notes."""
    notes: list[str] = []
    slices = [gpu for gpu in gpus if gpu.parent_uuid is not None]
    chosen = _cuda_order([gpu for gpu in gpus if gpu.parent_uuid is None], environment, notes)
    if (text := environment.get(VARIABLE)) is not None:
        chosen = _chosen(text, chosen, slices, notes)
    usable = _with_mig([gpu for gpu in chosen if "gpu" not in gpu.unavailable], slices, notes)
    return tuple(
        replace(gpu, visible=gpu in usable, cuda_index=usable.index(gpu) if gpu in usable else None) for gpu in gpus
    ), tuple(notes)


def _cuda_order(cards: list[Gpu], environment: Mapping[str, str], notes: list[str]) -> list[Gpu]:
    """Cards as CUDA numbers them: fastest first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    kinds = {card.name for card in cards if "gpu" not in card.unavailable}
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(kinds) < 2:
        return cards
    ordered = sorted(cards, key=_speed, reverse=True)
    if ordered != cards and not environment.get(VARIABLE, "").startswith(("GPU-", "MIG-")):
        notes.append(
            tr(
                "The GPUs differ, and CUDA orders them fastest first (probably {order}): set "
                "CUDA_DEVICE_ORDER=PCI_BUS_ID, or select GPUs by UUID.",
                order=", ".join(f"GPU {card.index}" for card in ordered),
            )
        )
    return ordered


def _speed(card: Gpu) -> tuple[float, tuple[int, int]]:
    """CUDA's own order is a heuristic that it does not publish; peak rate and capability come nearest."""
    spec = spec_of(card)
    return spec.fp32_flops if spec is not None else 0.0, card.capability or (0, 0)


def _chosen(text: str, cards: Sequence[Gpu], slices: Sequence[Gpu], notes: list[str]) -> list[Gpu]:
    """What all entries up to the first that names nothing select; nothing where one comes twice."""
    if not text.strip():
        notes.append(tr("{variable} is empty: no GPU is visible.", variable=VARIABLE))
        return []
    chosen: list[Gpu] = []
    for entry in text.split(","):
        said = {"variable": VARIABLE, "text": text, "entry": entry.strip()}
        found = _named(entry, slices if text.startswith("MIG-") else cards, text.startswith(("MIG-", "GPU-")))
        if len(found) != 1:
            notes.append(
                tr(
                    '{variable}="{text}": this machine has no GPU "{entry}"; CUDA ignores it and everything after it.',
                    **said,
                )
            )
            break
        (gpu,) = found
        if gpu in chosen:
            notes.append(tr('{variable}="{text}": "{entry}" lists a GPU twice; CUDA then shows no GPU.', **said))
            return []
        if "gpu" in gpu.unavailable:
            why = gpu.unavailable["gpu"]
            notes.append(tr("{variable} selects GPU {index}, but {reason}.", **said, index=gpu.index, reason=why))
        chosen.append(gpu)
    return chosen


def _named(entry: str, gpus: Sequence[Gpu], by_uuid: bool) -> list[Gpu]:
    """By the beginning of a UUID; or by number as strtoul reads it: "2" and "2ampere" are 2."""
    if by_uuid:
        return [gpu for gpu in gpus if entry and (gpu.uuid or "").startswith(entry)]
    number = re.match(r"\s*\+?(\d+)", entry)
    place = int(number[1]) if number is not None else len(gpus)
    return list(gpus[place : place + 1])


def _with_mig(chosen: list[Gpu], slices: Sequence[Gpu], notes: list[str]) -> list[Gpu]:
    """The one slice that CUDA enumerates, where the choice holds any; else the whole cards."""
    offered: list[Gpu] = []
    whole: list[Gpu] = []
    for gpu in chosen:
        if gpu.mig != "enabled":
            (whole if gpu.parent_uuid is None else offered).append(gpu)
        elif parts := [part for part in slices if part.parent_uuid == gpu.uuid]:
            offered += parts
        else:
            notes.append(tr("GPU {index} is in MIG mode but has no MIG slice: CUDA cannot use it.", index=gpu.index))
    if not offered:
        return whole
    if len(offered) > 1 or whole:
        notes.append(
            tr(
                "A program sees one MIG slice and no other GPU: here {mig} of GPU {index}. Set {variable} to the "
                "UUID of the one you want.",
                mig=offered[0].mig,
                index=offered[0].index,
                variable=VARIABLE,
            )
        )
    return offered[:1]


# What this hardware should run with: precision, attention and TF32, each with its reason.
#
# The compute capability decides, never torch's own answer: `torch.cuda.is_bf16_supported()` counts
# emulation and says yes on Turing.

AMPERE = (8, 0)
"""First capability with bf16 and TF32 tensor cores, and the first that FlashAttention-2 supports."""

FIRST_HALF = (5, 3)
"""First capability that computes in fp16."""


def choose_precision(machine: Machine) -> tuple[str, str]:
    if machine.accelerator == "mps":
        version = machine.os_version or tr("unknown")
        if version_tuple(machine.os_version) >= BF16_MACOS:
            return "bf16", tr("macOS {os_version} supports bf16 on its GPU", os_version=version)
        return "fp32", tr("bf16 on an Apple GPU needs macOS 14; this is {version}", version=version)
    if machine.accelerator == "cpu":
        # bf16 took 1 / 2.3 of the time of fp32 on a processor with avx512_bf16 (esm2-8m, 20 x 512), more on those without.
        if machine.cpu_bf16 is False:
            return "fp32", tr("this CPU has no bf16 instructions, so half precision would be slower")
        return "fp32", tr("CPUs compute in fp32; trainwiz bench --choose measures whether bf16 is faster")
    has_bf16, reason = can(machine, "bf16", AMPERE)
    has_half, why_not = can(machine, "fp16", FIRST_HALF)
    return ("bf16" if has_bf16 else "fp16", reason) if has_half else ("fp32", why_not)


def choose_attention(machine: Machine) -> tuple[str, str]:
    """("flash_attention_2" | "sdpa", reason). FlashAttention-2 also wants half precision, which such cards get."""
    able, reason = can(machine, "FlashAttention-2", AMPERE)
    if not able:
        return "sdpa", reason
    if machine.libraries.has("flash_attn"):
        version = machine.libraries.versions["flash_attn"]
        return "flash_attention_2", tr("flash-attn {version} is installed; {reason}", version=version, reason=reason)
    if machine.hypothetical:
        return "sdpa", tr("it is unknown whether flash-attn is installed on that machine; sdpa always works")
    return "sdpa", tr("flash-attn is not installed; sdpa has its own flash kernel")


def choose_tf32(machine: Machine) -> tuple[bool, str]:
    return can(machine, "TF32", AMPERE)


def can(machine: Machine, feature: str, needed: tuple[int, int]) -> tuple[bool, str]:
    """Whether the weakest card has the capability that a feature needs, and why or why not."""
    if machine.accelerator != "cuda":
        device = tr("an Apple GPU") if machine.accelerator == "mps" else tr("the CPU")
        return False, tr("{feature} needs an NVIDIA GPU; training is on {device}", feature=feature, device=device)
    gpu = weakest_gpu(machine)
    if gpu is None:
        return False, tr("no GPU is visible")
    card = gpu_label(gpu)
    if gpu.capability is None:
        why = gpu.unavailable.get("compute_capability", tr("not reported"))
        return False, tr("the compute capability of the {gpu} is unknown ({reason})", gpu=card, reason=why)
    return gpu.capability >= needed, tr(
        "the {gpu} has compute capability {capability}; {feature} needs {needed}",
        gpu=card,
        capability=gpu.compute_capability,
        feature=feature,
        needed=".".join(map(str, needed)),
    )


def weakest_gpu(machine: Machine) -> Gpu | None:
    """The visible card with the lowest capability (all ranks run the same program); one that is unknown counts as lowest."""
    return min(machine.visible_gpus, key=lambda gpu: gpu.capability or (0, 0), default=None)
