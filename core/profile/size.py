"""Sizes of memory as people write them."""

from __future__ import annotations

import re

_UNITS: dict[str, int] = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str | int) -> int | None:
    """Bytes in "64G", "12 GB" or "10GiB" (memory is sold in powers of two: all three mean 2^30), or None."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text if text > 0 else None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", str(text), re.IGNORECASE)
    if match is None:
        return None
    size = int(float(match.group(1)) * _UNITS[match.group(2).lower()])
    return size if size > 0 else None
