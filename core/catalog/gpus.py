"""The GPU catalogue: what each kind of card can do, found by what people type or what the driver says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.language import mark, tr


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
    unified: bool = False
    """Its memory is the machine's RAM."""


GIB = 1024**3

MEMORY_TOLERANCE = 0.15
"""How far a card's own total may lie from the size as sold: inline ECC takes a sixteenth, the driver a few percent."""

GUESSED_FLOPS_PER_BYTE = 130
"""Half-precision FLOP for each byte of memory traffic: near the middle of the catalogue (78 for an RTX 3080, 295 for an H100)."""

BY_HAND = mark("specified manually")
"""Source of a card that no catalogue has."""

_MAKER_WORDS = {
    "nvidia", "geforce", "rtx", "gtx", "tesla", "gpu", "graphics", "with", "design", "generation", "edition"
}  # fmt: skip
_LAPTOP = re.compile(r"\b(mobile|notebook)\b")
_SIZE = re.compile(r"\b(\d+)\s*gi?b?\b")

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
    import yaml  # the keeper of a run reads its cards through this module, and never the catalogue

    text = resources.files("trainwiz.profiles").joinpath("gpus.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    specs = (_spec(card) for entry in entries for card in _entries(entry))
    return MappingProxyType({spec.name: spec for spec in specs})


def find_gpu(name: str, memory_bytes: int | None = None) -> GpuSpec | None:
    """The card that `name` (of the catalogue, of NVML, or a short one) stands for, or None.

    One NVML name can stand for several cards: "NVIDIA GeForce RTX 3080" has 10, 12 or 20 GB, and
    `memory_bytes` (the total that the driver reports) decides. Without it an ambiguous name finds
    nothing, and so does a card whose memory fits no entry: its rates would be another card's.
    """
    candidates = gpus_called(name, memory_bytes)
    return candidates[0] if len(candidates) == 1 or (candidates and memory_bytes is not None) else None


def gpus_called(name: str, memory_bytes: int | None = None) -> list[GpuSpec]:
    """Every card that `name` stands for; with `memory_bytes` those of that size, the nearest first."""
    cards, wanted = load_gpus().values(), _normal(name)
    candidates = [spec for spec in cards if _normal(spec.name) == wanted]
    candidates = candidates or [spec for spec in cards if wanted in _names(spec)]
    size = None if candidates else _SIZE.search(name.lower())
    if size is not None:
        # Said where the catalogue has none, or elsewhere: "RTX 4090 24GB", "NVIDIA GeForce RTX 3050 6GB Laptop GPU".
        candidates = [spec for spec in cards if _unsized(name) in {_unsized(known) for known in _all_names(spec)}]
        memory_bytes = memory_bytes or int(size.group(1)) * GIB
    if memory_bytes is None:
        return candidates
    near = [spec for spec in candidates if _memory_error(spec, memory_bytes) <= MEMORY_TOLERANCE]
    return sorted(near, key=lambda spec: _memory_error(spec, memory_bytes))


def near_gpus(name: str, count: int = 5) -> list[str]:
    """Catalogue names that `name` may have meant, best first: those that it stands for, then the likest."""
    spellings = {_normal(name), _unsized(name)} - {""}

    def likeness(spec: GpuSpec) -> float:
        pairs = [(wanted, known) for wanted in spellings for known in _names(spec)]
        return max(
            (difflib.SequenceMatcher(None, *pair).ratio() + 0.3 * (pair[0] in pair[1]) for pair in pairs), default=0
        )

    found = {spec.name: likeness(spec) for spec in load_gpus().values()}
    return [known for known in sorted(found, key=lambda known: -found[known]) if found[known] >= 0.6][:count]


def spec_of(gpu: Gpu) -> GpuSpec | None:
    """Peak rates of a GPU of a machine: from the catalogue, or made from what was given by hand; None where unknown.

    By hand the half-precision rate is known: TF32 is taken as a half of it, and where nobody gives them, fp32 as an eighth
    and the bandwidth by the catalogue's usual ratio. All of these are marked uncertain.
    """
    spec = load_gpus().get(gpu.catalogue_name) if gpu.catalogue_name is not None else _by_hand(gpu)
    given = {"fp32_flops": (gpu.given_fp32_tflops, 1e12), "bandwidth_bytes_per_s": (gpu.given_bandwidth, 1e9)}
    rates: dict[str, Any] = {name: value * unit for name, (value, unit) in given.items() if value is not None}
    if spec is None or not rates:
        return spec
    return replace(spec, **rates, uncertain=tuple(name for name in spec.uncertain if name not in rates))


def _by_hand(gpu: Gpu) -> GpuSpec | None:
    if gpu.given_tflops is None or gpu.memory_total_bytes is None:
        return None
    half = gpu.given_tflops * 1e12
    ampere = gpu.capability is not None and gpu.capability >= (8, 0)
    return GpuSpec(
        name=gpu.name or tr("GPU specified manually"),
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


def _entries(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """One card, or those of one kind, each in one line; see the head of the file."""
    if "cards" not in entry:
        yield entry
        return
    times: Mapping[str, float] = entry["times_fp32"]
    for name, (memory_gib, cores, boost_mhz, bandwidth, power, *others) in entry["cards"].items():
        more = {key: value for other in others for key, value in other.items()}
        fp32 = 2e-6 * cores * boost_mhz
        rates = {f"{kind}_tflops": fp32 * times[kind] if kind in times else None for kind in ("fp16", "bf16", "tf32")}
        doubts = [*(key for key, rate in rates.items() if rate is not None), *more.get("uncertain", ())]
        if entry.get("laptop") or more.get("one_source"):
            doubts += ["fp32_tflops", "bandwidth_gb_per_s", "power_w"]
        unsized = {_SIZE.sub("", name.lower())} - {name.lower()}
        yield {
            **entry, **rates, "name": name, "nvml": (), "aliases": [*more.get("aliases", ()), *unsized],
            "memory_gib": memory_gib, "usable_gib": memory_gib * entry["usable"] if "usable" in entry else None,
            "fp32_tflops": fp32, "bandwidth_gb_per_s": bandwidth, "power_w": power, "uncertain": dict.fromkeys(doubts),
        }  # fmt: skip


def _spec(entry: Mapping[str, Any]) -> GpuSpec:
    values: dict[str, Any] = {
        name: None if entry[key] is None else float(entry[key]) * unit for key, (name, unit) in _FIELDS.items()
    }
    for name in ("memory_bytes", "usable_bytes"):
        values[name] = None if values[name] is None else int(values[name])
    return GpuSpec(
        **values,
        name=entry["name"],
        compute_capability=entry["compute_capability"],
        aliases=tuple(entry["nvml"]),
        short_names=tuple(entry["aliases"]),
        uncertain=tuple(_FIELDS[key][0] for key in entry["uncertain"]),
        source=entry.get("source", ""),
        unified=entry.get("unified", False),
    )


def _all_names(spec: GpuSpec) -> tuple[str, ...]:
    return (spec.name, *spec.aliases, *spec.short_names)


@cache
def _names(spec: GpuSpec) -> frozenset[str]:
    return frozenset(map(_normal, _all_names(spec)))


def _unsized(name: str) -> str:
    return _normal(_SIZE.sub("", name.lower()))


def _normal(name: str) -> str:
    """Lower case, letters and digits only, without the maker's words: they come and go between driver versions."""
    spelled = _LAPTOP.sub("laptop", re.sub(r"\b([rg]tx)(?=\d)", r"\1 ", name.lower()))
    spelled = re.sub(r"titan\W*rtx", "titanrtx", re.sub(r"(\d)\s*gi?b?\b", r"\1gb", spelled))
    words = re.sub(r"[^a-z0-9]+", " ", spelled).split()
    return "".join(word for word in words if word not in _MAKER_WORDS)


def _memory_error(spec: GpuSpec, memory_bytes: int) -> float:
    return abs(memory_bytes - spec.memory_bytes) / spec.memory_bytes
