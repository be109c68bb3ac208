"""Masked-LM training of ESM-2 on protein sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from trainwiz.core.config import RunConfig
from trainwiz.core.data.proteins import MASK
from trainwiz.core.errors import usage_error
from trainwiz.core.training.loss import trainer_loss
from trainwiz.core.training.masked_proteins import MaskedProteins, collate
from trainwiz.core.training.model import build_esm, esm_tokenizer
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.protein_rows import load_protein_rows
from trainwiz.core.training.sampling import EpochSampler


def build_masked_lm(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """Read the rows and build the model. Raises UsageError."""
    if config.peft.method != "none":
        raise usage_error(
            "peft_not_supported", "peft.method", "masked-LM training has no adapters; set peft.method: none."
        )
    rows = load_protein_rows(config, folder)
    probability, seed = config.training.mask_probability, config.training.seed
    overfits = config.mode.kind == "overfit"
    train = overfit_rows(rows.train, config, processes) if overfits else rows.train
    return TaskParts(
        model=build_esm(config, checkpoint),
        tokenizer=esm_tokenizer(),
        train=MaskedProteins(rows.proteins, train, probability, seed),
        evaluation=MaskedProteins(rows.proteins, rows.held_out, probability, seed) if len(rows.held_out) else None,
        collate=collate,
        sampler=EpochSampler(len(train), seed, repeat_first_epoch=overfits),
        loss=trainer_loss(config.training.label_smoothing, config.training.loss_chunk),
        mask_token=MASK,
    )


def overfit_rows(rows: np.ndarray, config: RunConfig, processes: int) -> np.ndarray:
    """The rows of the few micro-batches that an overfit run repeats: overfit_batches on each process."""
    wanted = (config.mode.overfit_batches or 1) * (config.batch.micro_batch_size or 1) * processes
    order = np.random.Generator(np.random.Philox(key=[config.training.seed, 0x0F17])).permutation(len(rows))
    return rows[np.sort(order[:wanted])]
