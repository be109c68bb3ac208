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
from trainwiz.core.data.lengths import LengthOrder, StepShape
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import UsageError
from trainwiz.core.export.training_arguments import processes, uses_deepspeed
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.batches import IGNORED, EpochSampler, RowKey, length_order, sample_generator
from trainwiz.core.training.evaluation import StepLoss
from trainwiz.core.training.model import INPUTS, batch_alone, measured_model, vocabulary_of, with_head
from trainwiz.core.training.tasks import Rows, TaskParts, TaskRows, load_task_rows, parts_of
from trainwiz.core.training.tokens import TokenRow

# The rows of a probe: of each step of the plan a few micro-batches that stand for all of it; generated where there are none.


GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, less their whole part, fill the range from 0 to 1 evenly (Kronecker sequence)."""


class SpreadSampler(EpochSampler):
    """The rows of an EpochSampler, of each step only some rounds (a micro-batch for each process), evenly spread.

    Where a step is arranged by length its first micro-batches are its longest, so that the first ones alone would
    stand for none of the others.
    """

    def __init__(self, rows: int, seed: int, lengths: LengthOrder | None, step: StepShape, rounds: int) -> None:
        """`step` of the plan; `rounds` of a probe's own step."""
        super().__init__(rows, seed, lengths=lengths)
        self._together = step.micro_batch * step.processes
        self._accumulation = step.rows // self._together
        self._rounds = rounds

    def _steps(self) -> int:
        """Whole steps of the plan of which only some rounds are taken; 0 where all rows are."""
        whole = super().__len__() // (self._together * self._accumulation)
        return whole if self._rounds < self._accumulation else 0

    def __len__(self) -> int:
        return self._steps() * self._rounds * self._together or super().__len__()

    def __iter__(self) -> Iterator[RowKey]:
        rows, spacing = super().__iter__(), self._accumulation / self._rounds
        for step in range(self._steps()):
            # From step to step at other places between two of them: the longest micro-batches are far apart.
            shift = (0.5 + step * GOLDEN) % 1
            chosen = [int((number + shift) * spacing) for number in range(self._rounds)]
            # The last one, in whose time the optimizer's step lies, is the middle one: the others stand for all.
            chosen.append(chosen.pop(self._rounds // 2))
            rounds = [list(islice(rows, self._together)) for _ in range(self._accumulation)]
            for number in chosen:
                yield from rounds[number]
        if not self._steps():
            yield from rows


GENERATED_ROWS = 4096
MASKED = 0.15


class GeneratedRows(Rows):
    """Random tokens in rows of given lengths: never the tokens decide the pace. Item (epoch, row) is always the same."""

    def __init__(
        self, task: str, vocabulary: int, lengths: np.ndarray, targets: np.ndarray | None, seed: int = 0
    ) -> None:
        """`lengths`, `targets` (n,) int64 in tokens; targets of an encoder-decoder alone."""
        super().__init__(np.arange(len(lengths)), self._made)
        self._task = task
        self._vocabulary = vocabulary
        self._lengths = lengths
        self._targets = targets
        self._seed = seed

    @classmethod
    def of(cls, order: ProbeOrder, task: str, vocabulary: int, seed: int) -> GeneratedRows:
        """Rows with the lengths of the order, each cut to the longest that the plan allows."""
        generator = np.random.Generator(np.random.Philox(key=[seed, 0x9206]))

        def drawn(lengths: Sequence[int], longest: int) -> np.ndarray:
            found: np.ndarray = generator.choice(np.asarray(lengths or [longest]), size=GENERATED_ROWS).clip(1, longest)
            return found

        lengths = drawn(order.lengths, order.length)
        targets = drawn(order.target_lengths, order.target_length) if order.target_length else None
        return cls(task, vocabulary, lengths, targets, seed)

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        longer = self._lengths if self._targets is None else np.maximum(self._lengths, self._targets)
        of_rows: np.ndarray = longer[numbers]
        return of_rows

    def _made(self, epoch: int, index: int) -> TokenRow:
        generator = sample_generator(self._seed, epoch, index)
        # The first numbers of a vocabulary are padding, ends and other signs that a model may treat apart.
        first = min(1000, self._vocabulary // 2)
        tokens = generator.integers(first, self._vocabulary, size=int(self._lengths[index]))
        if self._targets is not None:
            return tokens, generator.integers(first, self._vocabulary, size=int(self._targets[index]))
        if self._task in CLASSIFIES:
            return tokens, np.zeros(1 if self._task == "sequence-classification" else len(tokens), np.int64)
        if self._task == "causal-lm":
            return tokens, np.roll(tokens, -1)
        labels = np.where(generator.random(len(tokens)) < MASKED, tokens, IGNORED)
        # A batch without a label has no loss.
        labels[0] = tokens[0]
        return tokens, labels


def longest_rows(order: ProbeOrder, task: str, vocabulary: int, rows: int) -> list[TokenRow]:
    """Each as long as the plan's longest."""
    lengths = np.full(rows, order.length)
    targets = np.full(rows, order.target_length) if order.target_length else None
    source = GeneratedRows(task, vocabulary, lengths, targets)
    return [source[(0, index)] for index in range(rows)]


def probe_parts(
    config: RunConfig, folder: Path, order: ProbeOrder, device: torch.device, say: Callable[..., None]
) -> TaskParts:
    """The run's model with random weights, its rows, its loss. Rows that cannot be read here are generated; `say` is told
    so. Raises UsageError for a model that cannot be built."""
    task: TaskRows | None = None
    if order.rows == "data":
        try:
            task = load_task_rows(config, folder)
        except UsageError as error:
            say("rows", rows="lengths" if order.lengths else "longest", why=error.findings[0].message)
    # ZeRO-3 shares a model out while it is made.
    on_device = device.type == "cuda" and not uses_deepspeed(config)
    headed = config if task is None else with_head(config, task.head())
    model = measured_model(headed, folder, device if on_device else torch.device("cpu"))
    nothing: Any = None
    if task is None:
        rows = GeneratedRows.of(order, config.row_kind, vocabulary_of(model), config.training.seed)
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
    sampler = SpreadSampler(
        len(task.train),
        config.training.seed,
        length_order(planned, task.train_lengths, count),
        StepShape(micro * count * order.accumulation, micro, count),
        config.batch.gradient_accumulation_steps or 1,
    )
    return parts_of(
        replace(task, tokenizer=nothing, evaluation=None),
        config,
        model,
        sampler,
        loss=StepLoss.of(config),
    )
