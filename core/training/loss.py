"""The loss: a mean over all labelled tokens of one optimizer step, over every process, or of the means of its micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import LossMean
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.sliced_loss import sliced_loss
from trainwiz.core.training.vocabulary import READER, VocabularyProduct

Positions = Callable[[torch.Tensor], torch.Tensor]
"""labels of any shape -> (n,) int64, the places in the flattened labels that are labelled."""


def labelled_positions(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: the places of the labels that are not -100, in order."""
    return (labels != IGNORED).flatten().nonzero().squeeze(1)


class StepLoss:
    """`compute_loss_func` of the Trainer, and what the model must be called with for it.

        outputs = model(**inputs, **loss.keywords(labels))
        loss(outputs, labels, num_items_in_batch)

    With `chunk` the loss is computed inside the model's forward pass in slices of that many
    positions (see core.training.vocabulary, whose let_logits_be_read the model needs first);
    without, from the logits that come out. `positions` is the one step that depends on the values
    of the labels: a trace, whose tensors have none, brings its own.
    """

    def __init__(
        self,
        smoothing: float,
        chunk: int | None,
        positions: Positions = labelled_positions,
        mean: LossMean = "tokens",
    ) -> None:
        self.smoothing = smoothing
        self.chunk = chunk
        self.positions = positions
        self.mean = mean

    @classmethod
    def of(cls, config: RunConfig) -> StepLoss:
        """As the run asks for; a file from before there was a choice of the mean has token means."""
        training = config.training
        return cls(training.label_smoothing, training.loss_chunk, mean=training.loss_mean or "tokens")

    def keywords(self, labels: torch.Tensor) -> dict[str, Any]:
        """Keyword arguments of the model beside the batch."""
        return {} if self.chunk is None else {READER: lambda logits: self.summed(logits, labels)}

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Mean over `num_items_in_batch`, the labels of the whole accumulation window over all processes.

        So the gradient does not depend on how a window is cut into micro-batches. Without it, the mean over the labels
        of this micro-batch: the Trainer then divides by the micro-batches of the window.
        """
        total = self.summed(outputs.logits, labels) if self.chunk is None else outputs.loss
        count = num_items_in_batch if num_items_in_batch is not None else (labels != IGNORED).sum()
        # A window of prompts that were cut to nothing but themselves has no label: a loss of 0, not 0 / 0.
        return total / max(count, 1) if isinstance(count, int) else total / count.clamp(min=1)

    def summed(self, logits: torch.Tensor | VocabularyProduct, labels: torch.Tensor) -> torch.Tensor:
        """Summed cross entropy in nats over the labelled positions, in float32, with label smoothing."""
        positions = self.positions(labels)
        targets = labels.flatten()
        if isinstance(logits, VocabularyProduct):
            return sliced_loss(logits, positions, targets[positions], self.smoothing)
        rows = logits.reshape(-1, logits.shape[-1])
        if 2 * len(positions) <= len(rows):
            rows, targets = rows[positions], targets[positions]
        # Most are labelled: a copy of those that are would cost more than the ones that are not.
        return cross_entropy(
            rows.float(), targets, reduction="sum", label_smoothing=self.smoothing, ignore_index=IGNORED
        )
