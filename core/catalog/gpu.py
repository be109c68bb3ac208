"""GpuSpec: what a kind of GPU can do, from the catalogue in profiles/gpus.yaml."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Peak rates of one kind of GPU. Rates are dense, with fp32 accumulation; None: not supported."""

    name: str
    memory_bytes: int
    compute_capability: str
    fp16_flops: float | None
    bf16_flops: float | None
    tf32_flops: float | None
    fp32_flops: float
    bandwidth_bytes_per_s: float
    power_w: float | None = None
    aliases: tuple[str, ...] = ()
    """Names as NVML reports them, for example "NVIDIA GeForce RTX 3080"."""
    uncertain: tuple[str, ...] = ()
    """Fields that were found in one source only, or assumed."""
    source: str = ""
