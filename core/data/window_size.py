"""How much of streamed rows is in memory. Imports nothing: the plan knows it before any data is opened."""

from __future__ import annotations

WINDOW_BYTES = 128 << 20
"""Decoded texts of a window. A constant: the order of a run must not depend on the machine that resumes it."""


def window_bytes(bytes_in_memory: int, workers: int) -> int:
    """Decoded rows in one training process with its loader workers, each of which holds one window."""
    return max(1, workers) * min(bytes_in_memory, WINDOW_BYTES)
