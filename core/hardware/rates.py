"""Rates: what a device of this machine was measured to do, in its formats and at its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log


@dataclass(frozen=True, slots=True)
class ProductRate:
    """Matrix products of one format, (rows x width) by (width x width)."""

    format: str
    """ "fp32", "tf32", "bf16" or "fp16"."""
    rows: int
    """Tokens of the batch: rows of the left matrix."""
    width: int
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device, by real work of a few seconds; on a CPU in seconds of a machine with nothing else to do."""

    device: str
    """Key of the device (history.measurement.device_key)."""
    threads: int | None
    """CPU threads that computed; None on a GPU."""
    products: tuple[ProductRate, ...]
    attention: tuple[ProductRate, ...]
    """Fused attention forward and backward: `rows` are tokens of a row, `width` is the heads' together."""
    bytes_per_s: float
    """Read and written by an operation on each element of tensors that no cache holds."""
    launch_s: float
    """One small operation in the autograd engine, forward and backward together, divided by its kernels."""
    adam_parameters_per_s: float
    """Of the fused AdamW in fp32."""
    disk_bytes_per_s: float | None
    """Of reading rows where the runs are; None where it was not measured."""
    load: float
    """Share of the cores that other programs took meanwhile, 0 to 1."""
    day: str
    """ "2026-11-21"."""
    versions: dict[str, str]


def product_rate(rates: Sequence[ProductRate], format: str, rows: float, width: float) -> float | None:
    """FLOP/s of products at a size: that of the nearest measured sizes, geometrically between them; None without any."""
    known = [one for one in rates if one.format == format]
    if not known:
        return None
    weights = [(exp(-abs(log(rows / one.rows)) - 2 * abs(log(width / one.width))), one.flops_per_s) for one in known]
    total = sum(weight for weight, _ in weights)
    return exp(sum(weight * log(rate) for weight, rate in weights) / total)
