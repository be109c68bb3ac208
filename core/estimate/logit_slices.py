"""Slices of the logits: how many positions of one exist at a time. Without torch, for plans and training alike."""

from __future__ import annotations

from trainwiz.core.language import tr

EVALUATION_SLICE_BYTES = 256 * 2**20
"""What evaluation may hold beside the model's own logits."""
COPY_BYTES = 12
"""Of one logit in such a slice at most: taken out of the whole (4), its float32 (none more if it was), log-softmax (4),
and room for the temporary of the largest (4)."""


def evaluation_slice(vocabulary: int) -> int:
    """Positions of a slice in which evaluation reads logits that exist whole; at least 1."""
    return max(EVALUATION_SLICE_BYTES // (COPY_BYTES * max(vocabulary, 1)), 1)


NOT_SLICEABLE = frozenset({"fsmt", "prophetnet", "xlstm"})
"""Model types that have no last layer of their own, or whose logits are moved about after it. Others that no test
has met are refused by the training itself, before the first step or in it (core/training/vocabulary.py)."""


def slicing_problem(model_type: str) -> str | None:
    """Why the loss of such a model cannot be computed in slices (training.loss_chunk), in one sentence; None if it can."""
    if model_type not in NOT_SLICEABLE:
        return None
    return tr(
        "The loss of a model of type {model_type} cannot be computed in slices, since its logits are "
        "no plain product with the vocabulary; leave training.loss_chunk out (--loss-chunk).",
        model_type=repr(model_type),
    )
