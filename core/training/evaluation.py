"""Loss, accuracy and perplexity of held-out rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from trainwiz.core.training.loss import token_loss
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.parts import TaskParts

SUMS = 5


def token_sums(input_ids: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, parts: TaskParts) -> torch.Tensor:
    """(5,): summed loss in nats, right tokens, labelled tokens; loss and number of the hidden ones.

    `logits` (rows, length, vocabulary) belong to `labels` (rows, length), which a causal task has
    already moved to the place that predicts them. Without label smoothing.
    """
    labelled = labels != IGNORED
    right = (logits[labelled].argmax(dim=-1) == labels[labelled]).sum()
    loss = token_loss(logits, labels, 0.0, parts.loss_chunk)
    none = labelled.new_zeros((), dtype=torch.int64)
    if parts.mask_token < 0:
        return torch.stack([loss, right, labelled.sum(), none, none])
    hidden = labelled & (input_ids == parts.mask_token)
    hidden_loss = token_loss(logits, labels.masked_fill(~hidden, IGNORED), 0.0, parts.loss_chunk)
    return torch.stack([loss, right, labelled.sum(), hidden_loss, hidden.sum()])


def token_metrics(sums: torch.Tensor, prefix: str) -> dict[str, Any]:
    """Means over all labelled tokens of all processes, from the sums of `token_sums`.

    `loss` is the mean in nats, `perplexity` exp(loss) (Jelinek et al. 1977), `accuracy` the share
    of tokens whose largest logit is right. `hidden_loss` counts only the tokens that the input
    hides: a kept or swapped token gives its answer half away, so that plain copying lowers the
    loss below the entropy of the data.
    """
    loss, right, count, hidden_loss, hidden = (float(value) for value in sums)
    mean = loss / count if count else math.nan
    metrics: dict[str, Any] = {
        f"{prefix}_loss": mean,
        f"{prefix}_perplexity": math.exp(mean) if mean < 700 else math.inf if mean >= 700 else math.nan,
        f"{prefix}_accuracy": right / count if count else math.nan,
        f"{prefix}_labelled_tokens": int(count),
    }
    if hidden:
        metrics[f"{prefix}_hidden_loss"] = hidden_loss / hidden
    return metrics
