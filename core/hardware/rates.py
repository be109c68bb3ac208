"""Rates: what a device of this machine was measured to do, in its formats and at its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from math import exp, inf, log
from typing import Any


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
    day: str
    """ "2026-11-21"."""
    versions: dict[str, str]
    """Of torch and, on a GPU, of CUDA and the driver."""
    fresh_bytes_per_s: float | None = None
    """Like `bytes_per_s`, written into a new tensor of 64 MB as training does with logits: on a CPU the system makes its pages
    first, which takes several times as long. Smaller tensors (below 32 MB with glibc) take memory that is there already."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Rates:
        """ValueError for what is not rates."""
        from pydantic import TypeAdapter  # takes a tenth of a second

        found = TypeAdapter(cls).validate_python(dict(values))
        numbers = [found.bytes_per_s, found.launch_s, found.adam_parameters_per_s, found.threads]
        parts = [size for one in (*found.products, *found.attention) for size in (one.rows, one.width, one.flops_per_s)]
        known = (number for number in (*numbers, found.fresh_bytes_per_s, *parts) if number is not None)
        if not all(0 < number < inf for number in known):
            raise ValueError(found)
        date.fromisoformat(found.day)
        return found


def product_rate(rates: Sequence[ProductRate], format: str, rows: float, width: float) -> float | None:
    """FLOP/s of products at a size: that of the nearest measured sizes, geometrically between them; None without any."""
    known = [one for one in rates if one.format == format]
    if not known:
        return None
    weights = [(exp(-abs(log(rows / one.rows)) - 2 * abs(log(width / one.width))), one.flops_per_s) for one in known]
    total = sum(weight for weight, _ in weights)
    return exp(sum(weight * log(rate) for weight, rate in weights) / total)
