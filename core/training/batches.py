"""Which rows make a step, what is masked in them, and how they are loaded."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from multiprocessing import RawValue
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import (
    SHUFFLED_AS_ONE,
    LengthOrder,
    StepShape,
    Windows,
    packs_rows,
    padded_length,
    pool_steps,
)
from trainwiz.core.run.identity import sequences_of_a_step

# Which letters of a sequence are hidden: a function of (seed, epoch, sample) and of nothing else.

IGNORED = -100
"""Label of a position that the loss leaves out, as in torch and transformers."""
EVALUATION_EPOCH = 2**32 - 1
"""Epoch number of the held-out rows: their masks never change."""
MASK_SHARE = 0.8
RANDOM_SHARE = 0.1


def sample_generator(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Philox, a counter-based generator: its stream depends on the three numbers only, so that
    loader workers, prefetching and resuming change nothing."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, sample]))


def mask_tokens(
    tokens: np.ndarray,
    places: np.ndarray,
    firsts: np.ndarray,
    probability: float,
    generator: np.random.Generator,
    mask: int,
    others: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Input tokens and labels (n,) int64 of a row of `tokens` (n,).

    Each of the `places` (m,) is chosen with `probability`, with that of `firsts` (m,), the first one of its word; at least
    one is, so that no batch is without a label. Of the chosen 80 % become `mask`, 10 % one of `others` (from the first to
    before the second) at random, and 10 % stay (Devlin et al. 2018, section 3.1; the same shares in ESM-2).
    """
    choice, fate = generator.random((2, len(places)))
    replacement = generator.integers(*others, size=len(places))
    drawn = choice[np.searchsorted(places, firsts)]
    chosen = drawn < probability
    if not chosen.any():
        chosen = drawn == drawn.min(initial=1.0)
    inputs, labels = tokens.copy(), np.full(len(tokens), IGNORED, dtype=np.int64)
    own = tokens[places]
    labels[places[chosen]] = own[chosen]
    inputs[places] = np.select(
        [chosen & (fate < MASK_SHARE), chosen & (fate < MASK_SHARE + RANDOM_SHARE)], [mask, replacement], own
    )
    return inputs, labels


# In which order rows are seen. A sampler hands out (epoch, row) pairs, so that a row knows its epoch.

RowKey = tuple[int, int]
"""(epoch, row); row -1 fills up the last batch and counts for nothing."""
FILLER = -1


class FillerRow(tuple[np.ndarray, np.ndarray]):
    """(tokens, labels) of a row that fills up: computed as any other, and counted as padding."""

    __slots__ = ()


@dataclass(eq=False)
class EpochSampler(Sampler[RowKey]):
    """All training rows in an order that is a function of (seed, epoch)."""

    rows: int
    seed: int
    repeat_first_epoch: bool = False
    """Epoch 0 again and again: the same batches with the same masks."""
    windows: Windows | None = None
    """Over these rows, where they are streamed; all are shuffled as one where there are not several."""
    lengths: LengthOrder | None = None
    """Where rows of like length go together."""
    epoch: int = 0
    fillers: int = 0

    @property
    def order(self) -> str:
        """What a resumed run must find the same, beside seed and epoch, to see the rows in the same order."""
        return self.windows.described() if self.windows is not None and self.windows.several else SHUFFLED_AS_ONE

    def start_epoch(self, epoch: int) -> None:
        """Called by the Trainer's epoch callback. Not named `set_epoch`: accelerate would call that
        with its own count, which a resumed run does not share."""
        self.epoch = 0 if self.repeat_first_epoch else epoch

    def fill_up(self, rows_of_all_processes: int) -> None:
        """Ends each epoch with rows that count for nothing, so that all processes get the same number of micro-batches.

        accelerate would repeat rows in their place, more or fewer of them with each size of the micro-batch.
        """
        self.fillers = -self.rows % rows_of_all_processes

    def __len__(self) -> int:
        return self.rows + self.fillers

    def __iter__(self) -> Iterator[RowKey]:
        epoch = self.epoch
        if self.windows is not None and self.windows.several:
            orders = self.windows.orders(self.seed, epoch)
        else:
            # In which the Trainer of transformers would see them: accelerate's SeedableRandomSampler.
            generator = torch.Generator().manual_seed(self.seed + epoch)
            orders = iter([torch.randperm(self.rows, generator=generator).numpy()])
        if self.lengths is not None:
            orders = self.lengths.arranged(orders, self.seed, epoch)
        return chain(
            ((epoch, row) for order in orders for row in order.tolist()), repeat((epoch, FILLER), self.fillers)
        )


def evaluation_order(rows: int, rows_of_all_processes: int, lengths: np.ndarray | None = None) -> list[RowKey]:
    """All held-out rows, the longest first, filled up to whole batches on every process. `lengths` (rows,) int; None where
    all are of one length: in order.

    Without the fillers accelerate would repeat rows to make the processes even, and the mean would count them twice.
    """
    order = np.arange(rows) if lengths is None else np.argsort(-lengths.astype(np.int64), kind="stable")
    every = [*order.tolist(), *[FILLER] * (-rows % rows_of_all_processes)]
    return [(EVALUATION_EPOCH, row) for row in every]


def length_order(config: RunConfig, lengths: Callable[[], np.ndarray], processes: int) -> LengthOrder | None:
    """What data.group_by_length and data.arrange_by_length ask for; None where both are off.

    `lengths` gives (n,) int: of each row that trains.
    """
    data = config.data
    step = StepShape(sequences_of_a_step(config, processes), config.batch.micro_batch_size or 1, processes)
    # A file from before there was a choice has none: the gradient is the same.
    exact = step.can_be_arranged and config.training.loss_mean != "micro_batches"
    arranged = exact if data.arrange_by_length is None else data.arrange_by_length
    if not data.group_by_length and not arranged:
        return None
    of_rows = lengths().astype(np.uint32)
    pool = pool_steps(step.rows, len(of_rows)) if data.group_by_length else 1
    return LengthOrder(of_rows, step, pool=pool, even=packs_rows(config))


def overfit_items(items: int, config: RunConfig, processes: int) -> np.ndarray:
    """(n,) int64, ascending: which of `items` rows an overfit run repeats, overfit_batches micro-batches on each process."""
    wanted = (config.mode.overfit_batches or 1) * (config.batch.micro_batch_size or 1) * processes
    order = np.random.Generator(np.random.Philox(key=[config.training.seed, 0x0F17])).permutation(items)
    return np.sort(order[:wanted])


# Loader workers that outlive a stop: a signal to the whole process group must not cost the checkpoint.


class LoaderShield:
    """Workers ignore SIGTERM and SIGINT until the training is over.

    torch's own workers die of SIGTERM, and the training with them, before the checkpoint is
    written. Once `over` is called they end on SIGTERM again, as multiprocessing wants at exit.
    """

    def __init__(self) -> None:
        self._over = RawValue(ctypes.c_bool, False)

    def over(self) -> None:
        self._over.value = True

    def protect(self, loader: DataLoader[Any]) -> None:
        """Wrap the loader's own `worker_init_fn`. accelerate keeps the torch loader inside its own."""
        inner = getattr(loader, "base_dataloader", loader)
        if inner.num_workers > 0:
            inner.worker_init_fn = partial(_start_worker, inner.worker_init_fn, self._over)


def _start_worker(first: Callable[[int], Any] | None, over: Any, worker: int) -> None:
    if first is not None:
        first(worker)

    def end_if_over(number: int, frame: FrameType | None) -> None:
        if over.value:
            os._exit(0)

    signal.signal(signal.SIGTERM, end_if_over)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# PaddedBatch: rows of different lengths as one batch.

FILLER_TOKENS = "filler_tokens"
"""Key of a batch -> tokens in its rows that only fill up."""


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Pads inputs and labels at the right, each to its own longest row, rounded up to a multiple."""

    padding: int
    """The token number that fills inputs up; the attention mask hides it."""
    multiple: int = 1
    limit: int | None = None
    """Tokens of an input that no rounding goes beyond; None where rows are not cut."""
    target_limit: int | None = None
    """Likewise of its labels."""

    @classmethod
    def of(cls, config: RunConfig, padding: int) -> PaddedBatch:
        """As the run wants it."""
        limit = config.batch.sequence_length
        limits = {"seq2seq": config.batch.target_length or limit, "sequence-classification": 1}
        return cls(padding, config.data.pad_to_multiple_of or 1, limit, limits.get(config.task, limit))

    def __call__(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, torch.Tensor]:
        """input_ids and attention_mask (rows, input length), labels (rows, label length), int64.

        And `FILLER_TOKENS`, which no model takes, where there are rows that only fill up.
        """
        inputs, labels = [tokens for tokens, _ in rows], [labels for _, labels in rows]
        batch = {
            "input_ids": self._padded(inputs, self.padding, self.limit),
            "attention_mask": self._padded([np.ones_like(tokens) for tokens in inputs], 0, self.limit),
            "labels": self._padded(labels, IGNORED, self.target_limit),
        }
        fillers = [len(row[0]) for row in rows if isinstance(row, FillerRow)]
        return {**batch, FILLER_TOKENS: torch.tensor(sum(fillers))} if fillers else batch

    def _padded(self, rows: Sequence[np.ndarray], value: int, limit: int | None) -> torch.Tensor:
        """(rows, length) int64, filled with `value`."""
        length = padded_length(max(map(len, rows)), self.multiple, limit)
        table = np.full((len(rows), length), value, dtype=np.int64)
        for place, row in enumerate(rows):
            table[place, : len(row)] = row
        return torch.from_numpy(table)


def out_of_shared_memory(batch: Mapping[str, Any]) -> dict[str, Any]:
    """`batch` with what a loader worker made copied to memory of this process; what is on a GPU stays as it is.

    Each tensor of a worker keeps an open file and a part of /dev/shm as long as it lives: a step of some hundred
    micro-batches has more than the 1,024 files that a process usually may open.
    """

    def own(value: Any) -> Any:
        shared = isinstance(value, torch.Tensor) and value.is_cpu and value.is_shared()  # type: ignore[no-untyped-call]
        return value.clone() if shared else value

    return {name: own(value) for name, value in batch.items()}


# Rows end to end in one sequence, each seeing itself alone: transformers keeps them apart by their positions.
#
# A model whose mask is causal makes one from `position_ids` that begin anew (masking_utils.find_packed_sequence_indices,
# transformers 5), and its FlashAttention takes where rows end. Both want no mask and no cache.

ROW_ENDS, LONGEST = ("cu_seq_lens_q", "cu_seq_lens_k"), ("max_length_q", "max_length_k")
"""Of a packed batch, as transformers names it for FlashAttention: (rows + 1,) int32, 0 and where each row ends; and the
length of the longest, a number, which a device need not be asked for."""


def packed_batch(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Inputs and labels end to end; rows that only fill up are left out where there is another.

    input_ids, labels and position_ids (1, tokens) int64, positions counted from each row's beginning; ROW_ENDS, LONGEST.
    No mask: there is nothing to hide.
    """
    kept = [row for row in rows if not isinstance(row, FillerRow)]
    inputs, labels = zip(*(kept or rows[:1]), strict=True)
    lengths = [len(tokens) for tokens in inputs]
    positions = [np.arange(length) for length in lengths]
    sides = {"input_ids": inputs, "labels": labels, "position_ids": positions}
    batch: dict[str, Any] = {name: torch.from_numpy(np.concatenate(side))[None] for name, side in sides.items()}
    batch |= dict.fromkeys(ROW_ENDS, torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int32)))
    batch |= dict.fromkeys(LONGEST, max(lengths))
    return batch if kept else {**batch, FILLER_TOKENS: torch.tensor(lengths[0])}
