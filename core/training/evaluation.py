"""Loss, accuracy and perplexity of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.estimate.logit_slices import evaluation_slice
from trainwiz.core.training.loss import Positions, labelled_positions
from trainwiz.core.training.vocabulary import READER, VocabularyProduct

SUMS = 5


def batch_sums(
    model: Any,
    inputs: dict[str, Any],
    labels: torch.Tensor,
    mask_token: int,
    positions: Positions = labelled_positions,
) -> torch.Tensor:
    """`token_sums` of one batch, read inside the model's forward pass (see core.training.vocabulary)."""

    def reader(logits: torch.Tensor | VocabularyProduct) -> torch.Tensor:
        return token_sums(inputs["input_ids"], logits, labels, mask_token, positions)

    sums: torch.Tensor = model(**inputs, **{READER: reader}).loss
    return sums


def token_sums(
    input_ids: torch.Tensor,
    logits: torch.Tensor | VocabularyProduct,
    labels: torch.Tensor,
    mask_token: int = -1,
    positions: Positions = labelled_positions,
) -> torch.Tensor:
    """(5,): summed loss in nats, right tokens, labelled tokens; loss and number of the hidden ones.

    `logits` (rows, length, vocabulary) belong to `labels` (rows, length), which a causal task has
    already moved to the place that predicts them. Without label smoothing. Hidden are those whose
    input is `mask_token`; a task that hides none has -1. Beside `logits` no more than one slice
    (core.estimate.logit_slices) exists at a time.
    """
    where = positions(labels)
    targets = labels.flatten()[where]
    hidden = (
        input_ids.flatten()[where] == mask_token if mask_token >= 0 else torch.zeros_like(targets, dtype=torch.bool)
    )
    if isinstance(logits, VocabularyProduct):
        product = logits
        return product.read(
            product.rows()[where],
            lambda rows: _sums(
                (
                    (slice(start, start + product.chunk), product.logits_of(rows[start : start + product.chunk]))
                    for start in range(0, len(rows), product.chunk)
                ),
                targets,
                hidden,
            ),
        )
    flat, step = logits.reshape(-1, logits.shape[-1]), evaluation_slice(logits.shape[-1])
    parts = (slice(start, start + step) for start in range(0, len(where), step))
    return _sums(((part, flat[where[part]]) for part in parts), targets, hidden)


def _sums(slices: Iterable[tuple[slice, torch.Tensor]], targets: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """`token_sums` of (part of the targets, its logits), one slice after the other."""
    loss, hidden_loss = (torch.zeros((), dtype=torch.float32, device=targets.device) for _ in range(2))
    right = torch.zeros((), dtype=torch.int64, device=targets.device)
    for part, some in slices:
        losses = cross_entropy(some.float(), targets[part], reduction="none")
        loss += losses.sum()
        right += (some.argmax(dim=-1) == targets[part]).sum()
        hidden_loss += losses.where(hidden[part], 0.0).sum()
    return torch.stack([loss, right, torch.tensor(len(targets), device=targets.device), hidden_loss, hidden.sum()])


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
