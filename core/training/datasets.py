"""The rows of a run as a dataset of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.data.lengths import held_out_count, split_rows
from trainwiz.core.data.proteins import SPECIAL_TOKENS, EncodedProteins, cut_proteins, encode_proteins
from trainwiz.core.data.rows import KeptRows, LetterCheck, SourceTally, read_rows
from trainwiz.core.data.sources import SourceFiles, all_sources, find_files
from trainwiz.core.data.streamed import StreamedProteins, Windows
from trainwiz.core.data.texts import TextRows, streamed_rows
from trainwiz.core.errors import Finding, UsageError, has_errors, sort_findings
from trainwiz.core.language import tr
from trainwiz.core.training.batches import (
    FILLER,
    IGNORED,
    EpochSampler,
    FillerRow,
    PaddedBatch,
    RowKey,
    length_order,
    overfit_items,
)
from trainwiz.core.training.disk_guard import BestCheckpoints, best_checkpoints
from trainwiz.core.training.evaluation import EvaluationSchedule, Generator, StepLoss
from trainwiz.core.training.model import ModelInputs, batch_alone, build_model
from trainwiz.core.training.tokens import TokenRow, TokenStore, next_tokens
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# TaskParts: what a task hands to the Trainer.


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


# Rows of text as the Trainer asks for them. An item is asked for with its epoch, on which texts do not depend.


class TextDataset(Dataset[TokenRow]):
    """Some rows, each made into tokens when it is asked for: in the loader's workers, streamed or not."""

    def __init__(self, rows: TextRows, numbers: np.ndarray, encode: Callable[[str, str], TokenRow]) -> None:
        """`numbers` (n,) int64: the rows of the set. `encode` gets the target as None where rows have none."""
        self._texts = rows.texts
        self._targets = rows.targets
        self._numbers = numbers
        self._encode: Callable[..., TokenRow] = encode

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: RowKey) -> TokenRow:
        _, index = key
        number = int(self._numbers[max(index, 0)])
        tokens, labels = self._encode(self._texts[number], None if self._targets is None else self._targets[number])
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


class BlockDataset(Dataset[TokenRow]):
    """Joined texts cut into sequences of `length` tokens; what is left over at the end is dropped.

    Texts that are shorter than one sequence altogether give a single short one.
    """

    def __init__(self, tokens: TokenStore, length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._blocks = len(tokens) // length or int(len(tokens) > 1)

    def __len__(self) -> int:
        return self._blocks

    def __getitem__(self, key: RowKey) -> TokenRow:
        _, index = key
        tokens, labelled = self._tokens.read(max(index, 0) * self._length, self._length)
        labels = next_tokens(tokens, labelled)
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


class Chosen(Dataset[TokenRow]):
    """Some items of another set, as an overfitting run repeats them."""

    def __init__(self, whole: Dataset[TokenRow], chosen: np.ndarray) -> None:
        self._whole = whole
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, key: RowKey) -> TokenRow:
        epoch, index = key
        item: TokenRow = self._whole[(epoch, index if index == FILLER else int(self._chosen[index]))]
        return item


# What causal-lm and seq2seq have in common on the way from a config to TaskParts.


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


# The training rows of a run as token numbers in memory, one byte a letter; or read while training.


@dataclass(frozen=True, slots=True)
class ProteinRows:
    """All sequences, and which of them train and which evaluate."""

    proteins: EncodedProteins | StreamedProteins
    train: np.ndarray
    """(n,) int64: rows of `proteins` that train."""
    held_out: np.ndarray
    """(m,) int64: rows of `proteins` for evaluation."""
    windows: Windows | None = None
    """Order of all rows where they are streamed."""

    @property
    def in_pieces(self) -> bool:
        """Whether the rows are read piece by piece: they are streamed, and more than one window."""
        return self.windows is not None and self.windows.several

    def windows_of_training(self) -> Windows | None:
        return None if self.windows is None else self.windows.of_rows(self.train)


def load_protein_rows(config: RunConfig, folder: Path) -> ProteinRows:
    """Read every source whole; relative paths are from `folder`, the run folder.

    Sequences are cut to sequence_length - 2 letters. With data.streaming they stay where they are
    and are read while training. Raises UsageError with all that is wrong with any source,
    CannotRunError where the index of streamed rows cannot be written.
    """
    letters = config.batch.sequence_length - SPECIAL_TOKENS
    train, held = all_sources(config)
    if config.data.streaming:
        return _streamed(config, [*train, *held], len(train), folder, letters)
    findings: list[Finding] = []
    parts: list[EncodedProteins] = []
    for key, source in train:
        _load(source, key, folder, letters, parts, findings)
    rows = _protein_rows_count(parts)
    for key, source in held:
        _load(source, key, folder, letters, parts, findings)
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    proteins = joined_proteins(parts)
    if config.data.validation_sources:
        return ProteinRows(proteins, np.arange(rows), np.arange(rows, _protein_rows_count(parts)))
    return ProteinRows(proteins, *split_rows(rows, held_out_count(rows, config.data), config.training.seed))


def joined_proteins(parts: list[EncodedProteins]) -> EncodedProteins:
    """All sequences of the parts, in their order."""
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
    tokens = np.concatenate(
        [np.empty(0, np.uint8), *(part.tokens[part.offsets[0] : part.offsets[-1]] for part in parts)]
    )
    return EncodedProteins(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def _protein_rows_count(parts: list[EncodedProteins]) -> int:
    return sum(len(part.lengths) for part in parts)


def _load(
    source: DataSource, key: str, folder: Path, letters: int, parts: list[EncodedProteins], findings: list[Finding]
) -> None:
    tally, check = SourceTally(), LetterCheck()
    try:
        for rows in read_rows(find_files(source, key, folder, task="masked-lm", fetch=True), tally, "masked-lm"):
            proteins = encode_proteins(rows.texts)
            check.add(rows, proteins)
            parts.append(cut_proteins(proteins, letters))
    except UsageError as error:
        findings.extend(error.findings)
    findings.extend(tally.findings)
    findings.extend(check.findings(key))


def _streamed(
    config: RunConfig, sources: list[tuple[str, DataSource]], training: int, folder: Path, letters: int
) -> ProteinRows:
    found: list[SourceFiles] = []
    findings: list[Finding] = []
    for key, source in sources:
        try:
            found.append(find_files(source, key, folder, task="masked-lm", fetch=True))
        except UsageError as error:
            findings.extend(error.findings)
    if findings:
        raise UsageError(sort_findings(findings))
    rows, numbers = streamed_rows(config, found, training, folder, _letter_check)
    return ProteinRows(StreamedProteins(rows.texts(), letters), *numbers, rows.windows())


def _letter_check() -> tuple[Callable[[KeptRows], None], Callable[[str], list[Finding]]]:
    check = LetterCheck()
    return lambda rows: check.add(rows, encode_proteins(rows.texts)), check.findings
