"""TaskParts: what a task hands to the Trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset
from trainwiz.core.training.loss import LossFunction
from trainwiz.core.training.sampling import EpochSampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TaskParts:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    """Saved beside the weights."""
    train: Dataset[Any]
    evaluation: Dataset[Any] | None
    collate: Callable[..., dict[str, Any]]
    """Rows -> one batch with input_ids, attention_mask and labels."""
    sampler: EpochSampler
    loss: LossFunction
    mask_token: int
    """Token that hides a letter in the input; -1 for a task that hides none."""
