"""Slices of the logits: how many positions of one exist at a time. Without torch, for plans and training alike."""

from __future__ import annotations

EVALUATION_SLICE_BYTES = 256 * 2**20
"""What evaluation may hold beside the model's own logits."""
COPY_BYTES = 12
"""Of one logit in such a slice at most: taken out of the whole (4), its float32 (none more if it was), log-softmax (4),
and room for the temporary of the largest (4)."""


def evaluation_slice(vocabulary: int) -> int:
    """Positions of a slice in which evaluation reads logits that exist whole; at least 1."""
    return max(EVALUATION_SLICE_BYTES // (COPY_BYTES * max(vocabulary, 1)), 1)
