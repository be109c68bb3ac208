"""TaskParts: what a task hands to the Trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.training.evaluation_schedule import EvaluationSchedule
from trainwiz.core.training.generation import Generator
from trainwiz.core.training.loss import StepLoss
from trainwiz.core.training.model_inputs import ModelInputs, batch_alone
from trainwiz.core.training.retention import BestCheckpoints
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
    loss: StepLoss
    schedule: EvaluationSchedule
    mask_token: int = -1
    """Token that hides a letter in the input; -1 for a task that hides none."""
    inputs: ModelInputs = batch_alone
    generator: Generator | None = None
    """Writes texts in evaluation, for BLEU."""
    retention: BestCheckpoints | None = None
    """None keeps the newest checkpoints."""
    evaluation_lengths: np.ndarray | None = None
    """(n,) int, in any unit: of the rows of `evaluation`, which are then evaluated the longest first. None for rows
    that are read piece by piece, in the order of their files, and for those of one length."""
    train_collate: Callable[..., dict[str, Any]] | None = None
    """Of the rows that train, where they lie end to end; None pads them as those that are evaluated."""
    counts_targets: bool = False
    """The labels are a text of their own, whose tokens are counted too."""
