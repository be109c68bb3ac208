"""Which GPUs a program started here would see, and what this hardware should run with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.hardware.host import BF16_MACOS, version_tuple
from trainwiz.core.hardware.machine import Gpu, Machine, gpu_label
from trainwiz.core.language import mark, tr

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
    text = environment.get(VARIABLE)
    cards = _cuda_order([gpu for gpu in gpus if gpu.parent_uuid is None], text, environment, notes)
    slices = [gpu for gpu in gpus if gpu.parent_uuid is not None]
    if text is None:
        chosen = list(cards)
    elif text.startswith(("MIG-", "GPU-")):
        chosen = _chosen(text, lambda name: _unique(name, slices if text.startswith("MIG-") else cards), notes)
    elif text.strip():
        chosen = _chosen(text, lambda entry: _by_number(entry, cards), notes)
    else:
        chosen = []
        notes.append(tr("{variable} is empty: no GPU is visible.", variable=VARIABLE))
    lost = [gpu for gpu in chosen if "gpu" in gpu.unavailable]
    for gpu in lost if text is not None else ():
        reason = gpu.unavailable["gpu"]
        notes.append(
            tr("{variable} selects GPU {index}, but {reason}.", variable=VARIABLE, index=gpu.index, reason=reason)
        )
    usable = _with_mig([gpu for gpu in chosen if gpu not in lost], slices, notes)
    return tuple(
        replace(gpu, visible=gpu in usable, cuda_index=usable.index(gpu) if gpu in usable else None) for gpu in gpus
    ), tuple(notes)


def _cuda_order(cards: list[Gpu], text: str | None, environment: Mapping[str, str], notes: list[str]) -> list[Gpu]:
    """Cards as CUDA numbers them: fastest first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    kinds = {card.name for card in cards if "gpu" not in card.unavailable}
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(kinds) < 2:
        return cards
    ordered = sorted(cards, key=_slowness)
    if ordered != cards and (text is None or not text.startswith(("GPU-", "MIG-"))):
        order = ", ".join(f"GPU {card.index}" for card in ordered)
        notes.append(
            tr(
                "The GPUs differ, and CUDA orders them fastest first (probably {order}): set "
                "CUDA_DEVICE_ORDER=PCI_BUS_ID, or select GPUs by UUID.",
                order=order,
            )
        )
    return ordered


def _slowness(card: Gpu) -> tuple[float, float]:
    """CUDA's own order is a heuristic that it does not publish; peak rate and capability come nearest."""
    spec = spec_of(card)
    capability = card.capability or (0, 0)
    return (-(spec.fp32_flops if spec is not None else 0.0), -(capability[0] + capability[1] / 10))


def _chosen(text: str, find: Callable[[str], Gpu | None], notes: list[str]) -> list[Gpu]:
    """The cards of all entries up to the first that `find` knows nothing of; none where one comes twice."""
    chosen: list[Gpu] = []
    for entry in text.split(","):
        gpu, said = find(entry), {"variable": VARIABLE, "text": text, "entry": entry.strip()}
        if gpu is None:
            notes.append(
                tr(
                    '{variable}="{text}": this machine has no GPU "{entry}"; CUDA ignores it and everything after it.',
                    **said,
                )
            )
            break
        if gpu in chosen:
            notes.append(tr('{variable}="{text}": "{entry}" lists a GPU twice; CUDA then shows no GPU.', **said))
            return []
        chosen.append(gpu)
    return chosen


def _by_number(entry: str, cards: Sequence[Gpu]) -> Gpu | None:
    """As strtoul reads it: "2" and "2ampere" are 2; None for what starts with no number."""
    match = re.match(r"\+?\d+", entry.strip())
    return cards[int(match.group())] if match and int(match.group()) < len(cards) else None


def _unique(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    found = [gpu for gpu in gpus if name and gpu.uuid is not None and gpu.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None


def _with_mig(chosen: list[Gpu], slices: Sequence[Gpu], notes: list[str]) -> list[Gpu]:
    """The one slice that CUDA enumerates, where the choice holds any; else the whole cards."""
    offered = [
        part
        for gpu in chosen
        for part in ([gpu] if gpu.parent_uuid is not None else [one for one in slices if one.parent_uuid == gpu.uuid])
    ]
    whole = [gpu for gpu in chosen if gpu.parent_uuid is None and gpu.mig != "enabled"]
    notes += [
        tr("GPU {index} is in MIG mode but has no MIG slice: CUDA cannot use it.", index=gpu.index)
        for gpu in chosen
        if gpu.mig == "enabled" and not any(one.parent_uuid == gpu.uuid for one in slices)
    ]
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
        if version_tuple(machine.os_version) >= BF16_MACOS:
            return "bf16", tr("macOS {os_version} supports bf16 on its GPU", os_version=machine.os_version)
        version = machine.os_version or tr("unknown")
        return "fp32", tr("bf16 on an Apple GPU needs macOS 14; this is {version}", version=version)
    if machine.accelerator == "cpu":
        return "fp32", _on_a_cpu(machine.cpu_bf16)
    gpu = weakest_gpu(machine)
    if gpu is None or gpu.capability is None:
        return "fp32", _capability_unknown(gpu)
    if gpu.capability >= FIRST_HALF:
        value = "bf16" if gpu.capability >= AMPERE else "fp16"
        return value, tr("{card} has compute capability {capability}; bf16 needs 8.0", **_facts(gpu))
    return "fp32", tr("{card} has compute capability {capability}; fp16 needs 5.3", **_facts(gpu))


def _on_a_cpu(has_bf16: bool | None) -> str:
    """bf16 took 1 / 2.3 of the time of fp32 on a processor with avx512_bf16 (esm2-8m, 20 x 512), more on those without."""
    if has_bf16:
        return tr("a CPU; this one also has bf16 instructions, and trainwiz bench --choose measures the gain")
    if has_bf16 is False:
        return tr("this CPU has no bf16 instructions, so half precision would be slower")
    return tr("CPUs compute in fp32; trainwiz bench --choose measures whether bf16 is faster")


def choose_attention(machine: Machine) -> tuple[str, str]:
    """("flash_attention_2" | "sdpa", reason). FlashAttention-2 also wants half precision, which such cards get."""
    gpu, why = _card(
        machine,
        mark("FlashAttention-2 needs an NVIDIA GPU; training is on an Apple GPU"),
        mark("FlashAttention-2 needs an NVIDIA GPU; training is on the CPU"),
    )
    if gpu is None:
        return "sdpa", why
    if (gpu.capability or (0, 0)) < AMPERE:
        return "sdpa", tr("{card} has compute capability {capability}; FlashAttention-2 needs 8.0", **_facts(gpu))
    if machine.libraries.has("flash_attn"):
        text = tr(
            "flash-attn {version} is installed, compute capability is {capability}",
            version=machine.libraries.versions["flash_attn"],
            capability=gpu.compute_capability,
        )
        return "flash_attention_2", text
    if machine.hypothetical:
        return "sdpa", tr("it is unknown whether flash-attn is installed on that machine; sdpa always works")
    return "sdpa", tr("flash-attn is not installed; sdpa has its own flash kernel")


def choose_tf32(machine: Machine) -> tuple[bool, str]:
    gpu, why = _card(
        machine,
        mark("TF32 needs an NVIDIA GPU; training is on an Apple GPU"),
        mark("TF32 needs an NVIDIA GPU; training is on the CPU"),
    )
    if gpu is None:
        return False, why
    return (gpu.capability or (0, 0)) >= AMPERE, tr(
        "{card} has compute capability {capability}; TF32 needs 8.0", **_facts(gpu)
    )


def _card(machine: Machine, apple: str, cpu: str) -> tuple[Gpu | None, str]:
    """(the weakest card, ""), or (None, why none of a known capability computes: `apple` and `cpu` are those sentences)."""
    if machine.accelerator in ("mps", "cpu"):
        return None, tr(apple if machine.accelerator == "mps" else cpu)
    gpu = weakest_gpu(machine)
    return (None, _capability_unknown(gpu)) if gpu is None or gpu.capability is None else (gpu, "")


def weakest_gpu(machine: Machine) -> Gpu | None:
    """The visible card with the lowest capability (all ranks run the same program); one that is unknown counts as lowest."""
    return min(machine.visible_gpus, key=lambda gpu: gpu.capability or (0, 0), default=None)


def _facts(gpu: Gpu) -> dict[str, str | None]:
    return {"card": tr("the {gpu}", gpu=gpu_label(gpu)), "capability": gpu.compute_capability}


def _capability_unknown(gpu: Gpu | None) -> str:
    if gpu is None:
        return tr("no GPU is visible")
    card, why = tr("the {gpu}", gpu=gpu_label(gpu)), gpu.unavailable.get("compute_capability")
    if why:
        return tr("the compute capability of {card} is unknown ({reason})", card=card, reason=why)
    return tr("the compute capability of {card} is unknown", card=card)
