"""What causal-lm and seq2seq have in common on the way from a config to TaskParts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.data.windows import Windows
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.training.batches import PaddedBatch
from trainwiz.core.training.evaluation_schedule import EvaluationSchedule
from trainwiz.core.training.generation import Generator
from trainwiz.core.training.loss import StepLoss
from trainwiz.core.training.model import build_model
from trainwiz.core.training.model_inputs import ModelInputs
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.retention import best_checkpoints
from trainwiz.core.training.sampling import EpochSampler, length_order, overfit_items
from trainwiz.core.training.text_dataset import Chosen
from trainwiz.core.training.text_encoding import TokenRow
from transformers import PreTrainedTokenizerBase


def text_parts(
    config: RunConfig,
    folder: Path,
    checkpoint: Path | None,
    processes: int,
    *,
    rows: TextRows,
    tokenizer: PreTrainedTokenizerBase,
    train: Dataset[TokenRow],
    evaluation: Dataset[TokenRow] | None,
    inputs: ModelInputs,
    encode_source: Callable[[str], list[int]],
    windows: Windows | None,
    lengths: Callable[[], np.ndarray],
    evaluation_lengths: np.ndarray | None,
) -> TaskParts:
    """The parts of a text task. The model comes last, when all else is known to be right. Raises UsageError.

    `windows` over the items of `train`, where they are read while training; `lengths` gives (n,) int: of these
    items, in any unit, and `evaluation_lengths` is as in TaskParts.
    """
    evaluates = evaluation is not None
    findings: list[Finding] = []
    generates = evaluates and config.evaluation.generate
    if generates and rows.targets is None:
        findings.append(
            Finding(
                "nothing_to_compare",
                "error",
                "evaluation.generate",
                tr(
                    "BLEU compares generated texts with targets, and the data has none: name their column "
                    "(data.sources.0.target_column), or leave evaluation.generate off."
                ),
            )
        )
    retention = best_checkpoints(config, folder, findings, evaluates=evaluates)
    if findings:
        raise UsageError(findings)
    generator = Generator(config, folder, rows, tokenizer, encode_source) if generates else None
    overfits = config.mode.kind == "overfit"
    if overfits:
        chosen = overfit_items(_count(train), config, processes)
        train = Chosen(train, chosen)
    padding = tokenizer.pad_token_id
    assert isinstance(padding, int)
    return TaskParts(
        model=build_model(config, checkpoint, folder, tokenizer),
        tokenizer=tokenizer,
        train=train,
        evaluation=evaluation,
        collate=PaddedBatch.of(config, padding),
        sampler=EpochSampler(
            _count(train),
            config.training.seed,
            repeat_first_epoch=overfits,
            windows=None if overfits else windows,
            lengths=length_order(config, lambda: lengths()[chosen] if overfits else lengths(), processes),
        ),
        loss=StepLoss.of(config),
        schedule=EvaluationSchedule.of(config, with_saves=retention is not None),
        inputs=inputs,
        generator=generator,
        retention=retention,
        counts_targets=config.task == "seq2seq",
        evaluation_lengths=evaluation_lengths,
    )


def _count(rows: Dataset[TokenRow]) -> int:
    return len(rows)  # type: ignore[arg-type]


def refuse_empty(rows: Dataset[TokenRow], config: RunConfig) -> None:
    """Raises UsageError when nothing is left to train on."""
    if _count(rows) == 0:
        names = ", ".join(source.name for source in config.data.sources)
        message = tr("{names} leaves no row to train on.", names=names)
        raise UsageError(Finding("empty_data", "error", "data.sources", message))
