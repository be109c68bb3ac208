"""GpuSpec: what a kind of GPU can do, from the catalogue in profiles/gpus.yaml."""

from __future__ import annotations

from dataclasses import dataclass


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
