"""What each task learns from its rows: labels, masks, heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import joins_texts, packs_rows, prompt_room
from trainwiz.core.data.proteins import MASK, PAD, EncodedProteins
from trainwiz.core.data.streamed import StreamedProteins
from trainwiz.core.data.texts import TextRows, load_text_rows
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.training.batches import (
    FILLER,
    IGNORED,
    EpochSampler,
    FillerRow,
    PaddedBatch,
    RowKey,
    length_order,
    mask_sequence,
    overfit_items,
    sample_generator,
)
from trainwiz.core.training.datasets import (
    BlockDataset,
    TaskParts,
    TextDataset,
    load_protein_rows,
    refuse_empty,
    text_parts,
)
from trainwiz.core.training.disk_guard import best_checkpoints
from trainwiz.core.training.evaluation import EvaluationSchedule, StepLoss
from trainwiz.core.training.model import build_model, decoder_only, encoder_decoder, esm_tokenizer
from trainwiz.core.training.packing import PackedBatch
from trainwiz.core.training.tokenizer import build_tokenizer
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder, TokenRow, join_tokens, row_lengths
from transformers import PreTrainedTokenizerBase

# Dataset of masked protein sequences.

MaskedRow = tuple[np.ndarray, np.ndarray]
"""(tokens, labels), (n,) int64 each."""


class MaskedProteins(Dataset[MaskedRow]):
    """Some rows of the proteins; an item is asked for with its epoch, on which its mask depends."""

    def __init__(
        self, proteins: EncodedProteins | StreamedProteins, rows: np.ndarray, probability: float, seed: int
    ) -> None:
        self._proteins = proteins
        self._rows = rows
        self._probability = probability
        self._seed = seed

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: RowKey) -> MaskedRow:
        epoch, index = key
        row = int(self._rows[max(index, 0)])
        letters = self._proteins.letters(row)
        tokens, labels = mask_sequence(letters, self._probability, sample_generator(self._seed, epoch, row))
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


# Masked-LM training of ESM-2 on protein sequences.


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


# Causal language models: on joined texts, on texts one by one, or on prompts with their responses.


def build_causal_lm(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """Read the rows, get the tokenizer and build the model. Raises UsageError."""
    rows = load_text_rows(config, folder)
    tokenizer = build_tokenizer(config, folder, rows)
    encoder = CausalEncoder(tokenizer, config.batch.sequence_length)
    train, evaluation = _sets(config, rows, encoder, tokenizer)
    refuse_empty(train, config)
    return text_parts(
        config,
        folder,
        checkpoint,
        processes,
        rows=rows,
        tokenizer=tokenizer,
        train=train,
        evaluation=evaluation,
        inputs=decoder_only,
        encode_source=lambda text: encoder.prompt(text, prompt_room(config)),
        windows=None if joins_texts(config) else rows.windows_of_training(),
        lengths=lambda: _lengths(config, rows, train, encoder),
        evaluation_lengths=None
        if rows.in_pieces or joins_texts(config)
        else row_lengths(rows, rows.held_out, config.task, encoder),
    )


def _lengths(config: RunConfig, rows: TextRows, train: Dataset[TokenRow], encoder: CausalEncoder) -> np.ndarray:
    """Of the items that train; joined texts are of one length."""
    if joins_texts(config):
        return np.ones(len(train))  # type: ignore[arg-type]
    return row_lengths(rows, rows.train, config.task, encoder)


def _sets(
    config: RunConfig, rows: TextRows, encoder: CausalEncoder, tokenizer: PreTrainedTokenizerBase
) -> tuple[Dataset[TokenRow], Dataset[TokenRow] | None]:
    """The rows that train, and those that evaluate where any are held out."""
    if not joins_texts(config):
        held_out = TextDataset(rows, rows.held_out, encoder.row) if len(rows.held_out) else None
        return TextDataset(rows, rows.train, encoder.row), held_out
    train, held = (
        BlockDataset(join_tokens(rows, numbers, encoder, tokenizer), encoder.length)
        for numbers in (rows.train, rows.held_out)
    )
    return train, held if len(held) else None


# Encoder-decoder models on pairs of texts.


def build_seq2seq(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """Read the pairs, get the tokenizer and build the model. Raises UsageError."""
    rows = load_text_rows(config, folder)
    tokenizer = build_tokenizer(config, folder, rows)
    length = config.batch.sequence_length
    encoder = PairEncoder(tokenizer, length, config.batch.target_length or length)
    train = TextDataset(rows, rows.train, encoder.row)
    refuse_empty(train, config)
    return text_parts(
        config,
        folder,
        checkpoint,
        processes,
        rows=rows,
        tokenizer=tokenizer,
        train=train,
        evaluation=TextDataset(rows, rows.held_out, encoder.row) if len(rows.held_out) else None,
        inputs=encoder_decoder,
        encode_source=encoder.source,
        windows=rows.windows_of_training(),
        lengths=lambda: row_lengths(rows, rows.train, config.task, encoder),
        evaluation_lengths=None if rows.in_pieces else row_lengths(rows, rows.held_out, config.task, encoder),
    )


# The tasks that can be trained: each makes the parts that the Trainer needs.

TaskBuilder = Callable[[RunConfig, Path, Path | None, int], TaskParts]
"""(config, run folder, checkpoint to resume from, processes) -> parts."""

TASKS: dict[str, TaskBuilder] = {
    "masked-lm": build_masked_lm,
    "causal-lm": build_causal_lm,
    "seq2seq": build_seq2seq,
}


def build_task(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """The parts of the configured task. Raises UsageError with all that is wrong with its data, tokenizer or model."""
    parts = TASKS[config.task](config, folder, checkpoint, processes)
    return replace(parts, train_collate=PackedBatch()) if packs_rows(config) else parts
