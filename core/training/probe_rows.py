"""Rows of a probe: those of the data, or generated ones of given lengths. Never the tokens decide the pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.proteins import FIRST_RESIDUE, LAST_RESIDUE, PAD
from trainwiz.core.data.text_rows import load_text_rows
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.batches import PaddedBatch
from trainwiz.core.training.masked_proteins import MaskedProteins
from trainwiz.core.training.masking import mask_sequence, sample_generator
from trainwiz.core.training.protein_rows import load_protein_rows
from trainwiz.core.training.sampling import RowKey
from trainwiz.core.training.text_dataset import BlockDataset, TextDataset
from trainwiz.core.training.text_encoding import CausalEncoder, PairEncoder
from trainwiz.core.training.token_lengths import row_lengths
from trainwiz.core.training.token_store import join_tokens
from trainwiz.core.training.tokenizer import build_tokenizer

Row = tuple[np.ndarray, np.ndarray]
"""(tokens, labels), (n,) int64 each."""
Collate = Callable[[Sequence[Row]], dict[str, Any]]
GENERATED_ROWS = 4096


Lengths = Callable[[], np.ndarray]
"""Gives (n,) int: of each row, in any unit."""


def data_rows(config: RunConfig, folder: Path) -> tuple[Dataset[Any], Collate, Lengths]:
    """The training rows of the run itself, how they become a batch, and how long they are. Raises UsageError."""
    if config.task == "masked-lm":
        proteins = load_protein_rows(config, folder)
        training = config.training
        rows = MaskedProteins(proteins.proteins, proteins.train, training.mask_probability, training.seed)
        return rows, PaddedBatch.of(config, PAD), lambda: proteins.proteins.lengths[proteins.train]
    texts = load_text_rows(config, folder)
    tokenizer = build_tokenizer(config, folder, texts)
    padding = PaddedBatch.of(config, int(str(tokenizer.pad_token_id or 0)))
    length = config.batch.sequence_length
    if config.task == "seq2seq":
        pairs = PairEncoder(tokenizer, length, config.batch.target_length or length)
        return (
            TextDataset(texts, texts.train, pairs.row),
            padding,
            lambda: row_lengths(texts, texts.train, config.task, pairs),
        )
    encoder = CausalEncoder(tokenizer, length)
    if not joins_texts(config):
        return (
            TextDataset(texts, texts.train, encoder.row),
            padding,
            lambda: row_lengths(texts, texts.train, config.task, encoder),
        )
    blocks = BlockDataset(join_tokens(texts, texts.train, encoder, tokenizer), encoder.length)
    return blocks, padding, lambda: np.ones(len(blocks))


class GeneratedRows(Dataset[Row]):
    """Random tokens in rows of given lengths; item (epoch, row) is always the same."""

    def __init__(self, task: str, vocabulary: int, lengths: np.ndarray, targets: np.ndarray | None, seed: int) -> None:
        """`lengths`, `targets` (n,) int64 in tokens; targets of an encoder-decoder alone."""
        self._task = task
        self._vocabulary = vocabulary
        self._lengths = lengths
        self._targets = targets
        self._seed = seed

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> np.ndarray:
        return self._lengths if self._targets is None else np.maximum(self._lengths, self._targets)

    def __getitem__(self, key: RowKey) -> Row:
        epoch, index = key
        generator = sample_generator(self._seed, epoch, max(index, 0))
        length = int(self._lengths[max(index, 0)])
        if self._task == "masked-lm":
            letters = generator.integers(FIRST_RESIDUE, LAST_RESIDUE + 1, size=max(1, length - 2))
            return mask_sequence(letters, 0.15, generator)
        tokens = self._tokens(generator, length)
        if self._targets is None:
            return tokens, np.append(tokens[1:], self._tokens(generator, 1))
        return tokens, self._tokens(generator, int(self._targets[max(index, 0)]))

    def _tokens(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """The first numbers of a vocabulary are padding, ends and other signs that a model may treat apart."""
        return generator.integers(min(1000, self._vocabulary // 2), self._vocabulary, size=max(1, count))


def generated_rows(order: ProbeOrder, task: str, vocabulary: int, seed: int) -> GeneratedRows:
    """Rows with the lengths of the order, each cut to the longest that the plan allows."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 0x9206]))
    lengths = _drawn(order.lengths, order.length, generator)
    targets = _drawn(order.target_lengths, order.target_length, generator) if order.target_length else None
    return GeneratedRows(task, vocabulary, lengths, targets, seed)


def vocabulary_of(model: Any) -> int:
    """Rows of the input embeddings: with DeepSpeed's ZeRO-3 the tensor itself is empty."""
    weight = model.get_input_embeddings().weight
    return int(getattr(weight, "ds_shape", weight.shape)[0])


def longest_batch(order: ProbeOrder, task: str, vocabulary: int, rows: int, collate: Collate) -> dict[str, Any]:
    """A batch of `rows` sequences, each as long as the plan's longest."""
    whole = np.full(rows, order.length, dtype=np.int64)
    targets = np.full(rows, order.target_length, dtype=np.int64) if order.target_length else None
    source = GeneratedRows(task, vocabulary, whole, targets, seed=0)
    return collate([source[(0, index)] for index in range(rows)])


def _drawn(lengths: Sequence[int], longest: int, generator: np.random.Generator) -> np.ndarray:
    if not lengths:
        return np.full(GENERATED_ROWS, longest, dtype=np.int64)
    drawn: np.ndarray = generator.choice(np.asarray(lengths, dtype=np.int64), size=GENERATED_ROWS)
    clipped: np.ndarray = np.clip(drawn, 1, longest)
    return clipped
