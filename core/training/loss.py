"""The loss: a mean over all labelled tokens of one optimizer step, over every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from trainwiz.core.training.masking import IGNORED

LossFunction = Callable[..., torch.Tensor]


def token_loss(logits: torch.Tensor, labels: torch.Tensor, smoothing: float, chunk: int | None) -> torch.Tensor:
    """Summed cross entropy in nats over the labelled positions, in float32.

    logits (batch, length, vocabulary), labels (batch, length) with -100 where there is none.
    Only labelled positions are kept; with `chunk` they are computed in slices of that many
    tokens, each again in the backward pass, which bounds the float32 copy.
    """
    labelled = labels != IGNORED
    logits, targets = logits[labelled], labels[labelled]

    def summed(some: torch.Tensor, their: torch.Tensor) -> torch.Tensor:
        return cross_entropy(some.float(), their, reduction="sum", label_smoothing=smoothing)

    if chunk is None or len(targets) <= chunk:
        return summed(logits, targets)
    total = logits.new_zeros((), dtype=torch.float32)
    for some, their in zip(torch.split(logits, chunk), torch.split(targets, chunk), strict=True):
        total = total + checkpoint(summed, some, their, use_reentrant=False)
    return total


def trainer_loss(smoothing: float, chunk: int | None) -> LossFunction:
    """A `compute_loss_func` for the Trainer.

    It gets `num_items_in_batch`, the labels of the whole accumulation window over all processes,
    so that the gradient does not depend on how a window is cut into micro-batches.
    """

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor:
        total = token_loss(outputs.logits, labels, smoothing, chunk)
        count = num_items_in_batch if num_items_in_batch is not None else (labels != IGNORED).sum()
        # A window of prompts that were cut to nothing but themselves has no label: a loss of 0, not 0 / 0.
        return total / max(count, 1) if isinstance(count, int) else total / count.clamp(min=1)

    return loss
