"""The rows of a probe and its parts: the run's model with random weights, its rows or generated ones, its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.lengths import StepShape
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import UsageError
from trainwiz.core.export.training_arguments import processes, uses_deepspeed
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.batches import (
    IGNORED,
    EpochSampler,
    RowKey,
    length_order,
    sample_generator,
)
from trainwiz.core.training.evaluation import StepLoss
from trainwiz.core.training.model import (
    ModelInputs,
    batch_alone,
    decoder_only,
    encoder_decoder,
    random_model,
    vocabulary_of,
)
from trainwiz.core.training.tasks import Rows, TaskParts, TaskRows, load_task_rows, parts_of
from trainwiz.core.training.tokens import TokenRow

# SpreadSampler: of each step of the plan, a few micro-batches that stand for all of it.

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, less their whole part, fill the range from 0 to 1 evenly (Kronecker sequence)."""


class SpreadSampler(EpochSampler):
    """The rows of an EpochSampler, of each step only some rounds (a micro-batch for each process), evenly spread.

    Where a step is arranged by length its first micro-batches are its longest, so that the first ones alone would
    stand for none of the others.
    """

    def __init__(self, sampler: EpochSampler, step: StepShape, rounds: int) -> None:
        """`step` of the plan; `rounds` of a probe's own step."""
        self._sampler = sampler
        self._together = step.micro_batch * step.processes
        self._accumulation = max(1, step.rows // self._together)
        self._rounds = rounds

    def start_epoch(self, epoch: int) -> None:
        self._sampler.start_epoch(epoch)

    def fill_up(self, rows_of_all_processes: int) -> None:
        self._sampler.fill_up(rows_of_all_processes)

    def _steps(self) -> int:
        """Whole steps of the plan of which only some rounds are taken; 0 where all rows are."""
        return len(self._sampler) // (self._together * self._accumulation) if self._rounds < self._accumulation else 0

    def __len__(self) -> int:
        return self._steps() * self._rounds * self._together or len(self._sampler)

    def __iter__(self) -> Iterator[RowKey]:
        if not self._steps():
            yield from self._sampler
            return
        rows, spacing = iter(self._sampler), self._accumulation / self._rounds
        for step in range(self._steps()):
            # From step to step at other places between two of them: the longest micro-batches are far apart.
            shift = (0.5 + step * GOLDEN) % 1
            chosen = [int((number + shift) * spacing) for number in range(self._rounds)]
            # The last one, in whose time the optimizer's step lies, is the middle one: the others stand for all.
            chosen.append(chosen.pop(len(chosen) // 2))
            rounds = [list(islice(rows, self._together)) for _ in range(self._accumulation)]
            for number in chosen:
                yield from rounds[number]


# Generated rows, where those of the data cannot be read: never the tokens decide the pace.

GENERATED_ROWS = 4096
MASKED = 0.15
Collate = Callable[[Sequence[TokenRow]], dict[str, Any]]


class GeneratedRows(Rows):
    """Random tokens in rows of given lengths; item (epoch, row) is always the same."""

    def __init__(self, task: str, vocabulary: int, lengths: np.ndarray, targets: np.ndarray | None, seed: int) -> None:
        """`lengths`, `targets` (n,) int64 in tokens; targets of an encoder-decoder alone."""
        super().__init__(np.arange(len(lengths)), self._made)
        self._task = task
        self._vocabulary = vocabulary
        self._lengths = lengths
        self._targets = targets
        self._seed = seed

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        longer = self._lengths if self._targets is None else np.maximum(self._lengths, self._targets)
        of_rows: np.ndarray = longer[numbers]
        return of_rows

    def _made(self, epoch: int, index: int) -> TokenRow:
        generator = sample_generator(self._seed, epoch, index)
        tokens = self._tokens(generator, int(self._lengths[index]))
        if self._targets is not None:
            return tokens, self._tokens(generator, int(self._targets[index]))
        if self._task in CLASSIFIES:
            return tokens, np.zeros(1 if self._task == "sequence-classification" else len(tokens), np.int64)
        if self._task == "causal-lm":
            return tokens, np.append(tokens[1:], self._tokens(generator, 1))
        labels = np.where(generator.random(len(tokens)) < MASKED, tokens, IGNORED)
        # A batch without a label has no loss.
        labels[0] = tokens[0]
        return tokens, labels

    def _tokens(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """The first numbers of a vocabulary are padding, ends and other signs that a model may treat apart."""
        return generator.integers(min(1000, self._vocabulary // 2), self._vocabulary, size=max(1, count))


def generated_rows(order: ProbeOrder, task: str, vocabulary: int, seed: int) -> GeneratedRows:
    """Rows with the lengths of the order, each cut to the longest that the plan allows."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 0x9206]))
    lengths = _drawn(order.lengths, order.length, generator)
    targets = _drawn(order.target_lengths, order.target_length, generator) if order.target_length else None
    return GeneratedRows(task, vocabulary, lengths, targets, seed)


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
    return drawn.clip(1, longest)


# The parts of a probe: the run's model with random weights, its rows, its loss.

INPUTS: dict[str, ModelInputs] = {"causal-lm": decoder_only, "seq2seq": encoder_decoder}


def probe_parts(
    config: RunConfig, folder: Path, order: ProbeOrder, device: torch.device, say: Callable[..., None]
) -> TaskParts:
    """Rows that cannot be read here are generated; `say` is told so. Raises UsageError for a model that cannot be built."""
    task: TaskRows | None = None
    if order.rows == "data":
        try:
            task = load_task_rows(config, folder)
        except UsageError as error:
            say("rows", rows="lengths" if order.lengths else "longest", why=error.findings[0].message)
    # ZeRO-3 shares a model out while it is made.
    on_device = device.type == "cuda" and not uses_deepspeed(config)
    model = random_model(config, device if on_device else torch.device("cpu"), {} if task is None else task.head())
    nothing: Any = None
    if task is None:
        rows = generated_rows(order, config.row_kind, vocabulary_of(model), config.training.seed)
        task = TaskRows(
            rows=TextRows(nothing, None, rows.numbers, np.arange(0)),
            tokenizer=nothing,
            padding=0,
            train=rows,
            evaluation=None,
            inputs=INPUTS.get(config.task, batch_alone),
            lengths=rows.lengths,
        )
    # Arranged as in a step of the plan, which may have more micro-batches than one of the probe.
    planned = config.with_values({"batch.gradient_accumulation_steps": order.accumulation}, "solved")
    count, micro = processes(config), config.batch.micro_batch_size or 1
    sampler = EpochSampler(
        len(task.train), config.training.seed, lengths=length_order(planned, task.train_lengths, count)
    )
    shape = StepShape(micro * count * order.accumulation, micro, count)
    return parts_of(
        replace(task, tokenizer=nothing, evaluation=None),
        config,
        model,
        SpreadSampler(sampler, shape, config.batch.gradient_accumulation_steps or 1),
        loss=StepLoss.of(config),
    )
