"""The rows of a probe, and which of them a step takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import StepShape, joins_texts
from trainwiz.core.data.proteins import FIRST_RESIDUE, LAST_RESIDUE, PAD
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.batches import EpochSampler, PaddedBatch, RowKey, mask_sequence, sample_generator
from trainwiz.core.training.datasets import BlockDataset, TextDataset, load_protein_rows
from trainwiz.core.training.tasks import MaskedProteins
from trainwiz.core.training.tokenizer import build_tokenizer
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder, join_tokens, row_lengths

# SpreadSampler: of each step of the plan, a few micro-batches that stand for all of it.

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, less their whole part, fill the range from 0 to 1 evenly (Kronecker sequence)."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rounds of one step of the plan: the longest row of each, in any unit."""

    measured: tuple[float, ...]
    """Of those that the probe computes, in their order."""
    missing: tuple[float, ...]

    @property
    def whole(self) -> float:
        """Tokens of all rounds over those of the measured ones."""
        measured = sum(self.measured)
        return (measured + sum(self.missing)) / measured if measured else 1.0


class SpreadSampler(EpochSampler):
    """The rows of an EpochSampler, of each step only some rounds (a micro-batch for each process), evenly spread.

    Where a step is arranged by length its first micro-batches are its longest.
    """

    def __init__(
        self, sampler: EpochSampler, step: StepShape, rounds: int, lengths: Callable[[], np.ndarray] | None = None
    ) -> None:
        """`step` of the plan; `rounds` of a probe's own step; `lengths` (rows,) of all rows, where they decide the order."""
        self.parts: deque[Part] = deque()
        """Of the steps that were handed out, the oldest first; empty where all are whole. The clock takes them away."""
        self._lengths_of_rows = lengths
        self._sampler = sampler
        self._together = step.micro_batch * step.processes
        self._accumulation = max(1, step.rows // self._together)
        self._rounds = min(rounds, self._accumulation)

    def start_epoch(self, epoch: int) -> None:
        self._sampler.start_epoch(epoch)

    def fill_up(self, rows_of_all_processes: int) -> None:
        self._sampler.fill_up(rows_of_all_processes)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._sampler), self._together * self._accumulation)
        if whole or self._rounds == self._accumulation:
            return whole * self._rounds * self._together + (rest if self._rounds == self._accumulation else 0)
        return rest

    def __iter__(self) -> Iterator[RowKey]:
        if len(self) == len(self._sampler):
            yield from self._sampler
            return
        self.parts.clear()
        rows, spacing = iter(self._sampler), self._accumulation / self._rounds
        for step in range(len(self._sampler) // (self._together * self._accumulation)):
            # From step to step at other places between two of them: the longest micro-batches are far apart.
            shift = (0.5 + step * GOLDEN) % 1
            chosen = {int((one + shift) * spacing) for one in range(self._rounds)}
            rounds = [list(islice(rows, self._together)) for _ in range(self._accumulation)]
            longest = self._longest(rounds)
            self.parts.append(
                Part(
                    tuple(each for number, each in enumerate(longest) if number in chosen),
                    tuple(each for number, each in enumerate(longest) if number not in chosen),
                )
            )
            for number in sorted(chosen):
                yield from rounds[number]

    def _longest(self, rounds: list[list[RowKey]]) -> list[float]:
        """Of each round; all alike where lengths do not decide the order."""
        if self._lengths_of_rows is None:
            return [1.0] * len(rounds)
        lengths = self._lengths_of_rows()
        return [float(max((lengths[row] for _, row in rows if row >= 0), default=0)) for rows in rounds]


# Rows of a probe: those of the data, or generated ones of given lengths. Never the tokens decide the pace.

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
