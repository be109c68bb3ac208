"""Masked-LM training of ESM-2 on protein sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from trainwiz.core.config import RunConfig
from trainwiz.core.data.proteins import MASK, PAD
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.training.batches import PaddedBatch
from trainwiz.core.training.evaluation_schedule import EvaluationSchedule
from trainwiz.core.training.loss import StepLoss
from trainwiz.core.training.masked_proteins import MaskedProteins
from trainwiz.core.training.model import build_model, esm_tokenizer
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.protein_rows import load_protein_rows
from trainwiz.core.training.retention import best_checkpoints
from trainwiz.core.training.sampling import EpochSampler, length_order, overfit_items


def build_masked_lm(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """Read the rows and build the model. Raises UsageError."""
    rows = load_protein_rows(config, folder)
    evaluates = len(rows.held_out) > 0
    findings: list[Finding] = []
    retention = best_checkpoints(config, folder, findings, evaluates=evaluates)
    if findings:
        raise UsageError(findings)
    probability, seed = config.training.mask_probability, config.training.seed
    overfits = config.mode.kind == "overfit"
    train = overfit_rows(rows.train, config, processes) if overfits else rows.train
    return TaskParts(
        model=build_model(config, checkpoint, folder, None),
        tokenizer=esm_tokenizer(),
        train=MaskedProteins(rows.proteins, train, probability, seed),
        evaluation=MaskedProteins(rows.proteins, rows.held_out, probability, seed) if evaluates else None,
        collate=PaddedBatch.of(config, PAD),
        sampler=EpochSampler(
            len(train),
            seed,
            repeat_first_epoch=overfits,
            windows=None if overfits else rows.windows_of_training(),
            lengths=length_order(config, lambda: rows.proteins.lengths[train], processes),
        ),
        loss=StepLoss.of(config),
        schedule=EvaluationSchedule.of(config, with_saves=retention is not None),
        mask_token=MASK,
        evaluation_lengths=None if rows.in_pieces else rows.proteins.lengths[rows.held_out],
        retention=retention,
    )


def overfit_rows(rows: np.ndarray, config: RunConfig, processes: int) -> np.ndarray:
    """Those of `rows` that an overfit run repeats."""
    chosen: np.ndarray = rows[overfit_items(len(rows), config, processes)]
    return chosen
