"""The GPU catalogue: what each kind of card can do, found by what people type or what the driver says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.language import mark, tr

# GpuSpec: what a kind of GPU can do, from the catalogue in profiles/gpus.yaml.


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Peak rates of one kind of GPU. Rates are dense, with fp32 accumulation; None: not supported."""

    name: str
    memory_bytes: int
    """As sold; of Apple chips the smallest configuration (their memory is the machine's RAM)."""
    compute_capability: str | None
    """Like "8.6"; None for a chip that is not CUDA's."""
    fp16_flops: float | None
    bf16_flops: float | None
    tf32_flops: float | None
    fp32_flops: float
    bandwidth_bytes_per_s: float
    power_w: float | None = None
    aliases: tuple[str, ...] = ()
    """Names as NVML reports them, for example "NVIDIA GeForce RTX 3080"."""
    short_names: tuple[str, ...] = ()
    """What people type; one that several cards share is ambiguous."""
    usable_bytes: int | None = None
    """What CUDA reports as the card's total: the driver's share and inline ECC are taken off."""
    uncertain: tuple[str, ...] = ()
    """Fields that were found in one source only, or assumed."""
    source: str = ""
    note: str | None = None


# The GPU catalogue: load it, and find a card by what people type or by what the driver calls it.

GIB = 1024**3

MEMORY_TOLERANCE = 0.15
"""How far a card's own total may lie from the size as sold: inline ECC takes a sixteenth, the driver a few percent."""

GUESSED_FLOPS_PER_BYTE = 130
"""Half-precision FLOP for each byte of memory traffic: near the middle of the catalogue (78 for an RTX 3080, 295 for an H100)."""

BY_HAND = mark("given by hand")
"""Source of a card that no catalogue has."""

_MAKER_WORDS = {"nvidia", "geforce", "rtx", "tesla", "gpu", "graphics"}

_FIELDS: dict[str, tuple[str, float]] = {
    "memory_gib": ("memory_bytes", GIB),
    "usable_gib": ("usable_bytes", GIB),
    "fp16_tflops": ("fp16_flops", 1e12),
    "bf16_tflops": ("bf16_flops", 1e12),
    "tf32_tflops": ("tf32_flops", 1e12),
    "fp32_tflops": ("fp32_flops", 1e12),
    "bandwidth_gb_per_s": ("bandwidth_bytes_per_s", 1e9),
    "power_w": ("power_w", 1.0),
}
"""Key of the file -> field and its unit."""


@cache
def load_gpus() -> Mapping[str, GpuSpec]:
    """Every known GPU by its catalogue name, in the order of the file."""
    import yaml  # the keeper of a run reads its cards through this module, and never the catalogue

    text = resources.files("trainwiz.profiles").joinpath("gpus.yaml").read_text(encoding="utf-8")
    specs = [_spec(row) for row in yaml.safe_load(text)]
    return MappingProxyType({spec.name: spec for spec in specs})


def find_gpu(name: str, memory_bytes: int | None = None) -> GpuSpec | None:
    """The card that `name` (of the catalogue, of NVML, or a short one) stands for, or None.

    One NVML name can stand for several cards: "NVIDIA GeForce RTX 3080" has 10, 12 or 20 GB, and
    `memory_bytes` (the total that the driver reports) decides. Without it an ambiguous name finds
    nothing, and so does a card whose memory fits no entry: its rates would be another card's.
    """
    wanted = _normal(name)
    exact = [spec for spec in load_gpus().values() if _normal(spec.name) == wanted]
    candidates = exact or [spec for spec in load_gpus().values() if wanted in _names(spec)]
    if memory_bytes is not None:
        candidates = [spec for spec in candidates if _memory_error(spec, memory_bytes) <= MEMORY_TOLERANCE]
        candidates.sort(key=lambda spec: _memory_error(spec, memory_bytes))
        return candidates[0] if candidates else None
    return candidates[0] if len(candidates) == 1 else None


def near_gpus(name: str, count: int = 5) -> list[str]:
    """Catalogue names that `name` may have meant, best first."""
    wanted = _normal(name)
    meant: dict[str, float] = {}
    for spec in load_gpus().values():
        ratios = [difflib.SequenceMatcher(None, wanted, known).ratio() for known in _names(spec)]
        starts = any(known.startswith(wanted) or wanted.startswith(known) for known in _names(spec))
        meant[spec.name] = max(ratios) + (0.3 if starts and wanted else 0.0)
    ranked = sorted(meant, key=lambda known: -meant[known])
    return [known for known in ranked if meant[known] >= 0.6][:count]


def spec_of(gpu: Gpu) -> GpuSpec | None:
    """Peak rates of a GPU of a machine: from the catalogue, or made from what was given by hand; None where unknown.

    By hand only the half-precision rate is known: TF32 is taken as a half of it, fp32 as an eighth,
    and the bandwidth from the catalogue's usual ratio. All of these are marked uncertain.
    """
    if gpu.catalogue_name is not None:
        return load_gpus().get(gpu.catalogue_name)
    if gpu.given_tflops is None or gpu.memory_total_bytes is None:
        return None
    half = gpu.given_tflops * 1e12
    ampere = gpu.capability is not None and gpu.capability >= (8, 0)
    return GpuSpec(
        name=gpu.name or tr("GPU given by hand"),
        memory_bytes=gpu.memory_total_bytes,
        compute_capability=gpu.compute_capability,
        fp16_flops=half,
        bf16_flops=half if ampere else None,
        tf32_flops=half / 2 if ampere else None,
        fp32_flops=half / 8,
        bandwidth_bytes_per_s=half / GUESSED_FLOPS_PER_BYTE,
        uncertain=("bf16_flops", "tf32_flops", "fp32_flops", "bandwidth_bytes_per_s"),
        source=BY_HAND,
    )


def is_rate_uncertain(spec: GpuSpec, precision: str) -> bool:
    """The peak rate in `precision`, which times rest on, was found in one source only, derived, or assumed."""
    return f"{precision.removesuffix('-true')}_flops" in spec.uncertain


def _spec(row: Mapping[str, Any]) -> GpuSpec:
    values: dict[str, Any] = {
        name: None if row[key] is None else float(row[key]) * unit for key, (name, unit) in _FIELDS.items()
    }
    for name in ("memory_bytes", "usable_bytes"):
        values[name] = None if values[name] is None else int(values[name])
    return GpuSpec(
        **values,
        name=row["name"],
        compute_capability=row["compute_capability"],
        aliases=tuple(row["nvml"]),
        short_names=tuple(row["aliases"]),
        uncertain=tuple(_FIELDS[key][0] for key in row["uncertain"]),
        source=row["source"],
        note=row.get("note"),
    )


def _names(spec: GpuSpec) -> set[str]:
    return {_normal(known) for known in (spec.name, *spec.aliases, *spec.short_names)}


def _normal(name: str) -> str:
    """Lower case, letters and digits only, without the maker's words: they come and go between driver versions."""
    spelled = re.sub(r"(\d)\s*gi?b?\b", r"\1gb", re.sub(r"\brtx(?=\d)", "rtx ", name.lower()))
    words = re.sub(r"[^a-z0-9]+", " ", spelled).split()
    return "".join(word for word in words if word not in _MAKER_WORDS)


def _memory_error(spec: GpuSpec, memory_bytes: int) -> float:
    return abs(memory_bytes - spec.memory_bytes) / spec.memory_bytes
