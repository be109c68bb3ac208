"""multiplies_in_tf32: whether matrix products of fp32 numbers are taken in TF32 now."""

from __future__ import annotations

import torch


def multiplies_in_tf32(device: torch.device) -> bool:
    """Of `device`. From torch 2.9 on transformers sets `fp32_precision`, and the older `allow_tf32` cannot be read then."""
    if device.type != "cuda":
        return False
    products = torch.backends.cuda.matmul
    precision = getattr(products, "fp32_precision", None)
    return bool(products.allow_tf32) if precision is None else precision == "tf32"
