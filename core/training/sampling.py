"""In which order rows are seen. A sampler hands out (epoch, row) pairs, so that a row knows its epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import numpy as np
import torch
from torch.utils.data import Sampler
from trainwiz.core.config import RunConfig
from trainwiz.core.data.length_order import LengthOrder, StepShape, pool_steps
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.data.windows import SHUFFLED_AS_ONE, Windows
from trainwiz.core.run.identity_now import sequences_of_a_step
from trainwiz.core.training.masking import EVALUATION_EPOCH

RowKey = tuple[int, int]
"""(epoch, row); row -1 fills up the last batch and counts for nothing."""
FILLER = -1


class FillerRow(tuple[np.ndarray, np.ndarray]):
    """(tokens, labels) of a row that fills up: computed as any other, and counted as padding."""

    __slots__ = ()


class EpochSampler(Sampler[RowKey]):
    """All training rows in an order that is a function of (seed, epoch): the windows of streamed rows, else all as one.

    `repeat_first_epoch` gives epoch 0 again and again: the same batches with the same masks.
    """

    def __init__(
        self,
        rows: int,
        seed: int,
        *,
        repeat_first_epoch: bool = False,
        windows: Windows | None = None,
        lengths: LengthOrder | None = None,
    ) -> None:
        """`windows` over these rows, where they are streamed; `lengths` where those of like length go together."""
        self._rows = rows
        self._windows = windows if windows is not None and windows.several else None
        self._lengths = lengths
        self._fillers = 0
        self._seed = seed
        self._repeat = repeat_first_epoch
        self._epoch = 0

    @property
    def order(self) -> str:
        """What a resumed run must find the same, beside seed and epoch, to see the rows in the same order."""
        return self._windows.described() if self._windows is not None else SHUFFLED_AS_ONE

    def start_epoch(self, epoch: int) -> None:
        """Called by the Trainer's epoch callback. Not named `set_epoch`: accelerate would call that
        with its own count, which a resumed run does not share."""
        self._epoch = 0 if self._repeat else epoch

    def fill_up(self, rows_of_all_processes: int) -> None:
        """Ends each epoch with rows that count for nothing, so that all processes get the same number of micro-batches.

        accelerate would repeat rows in their place, more or fewer of them with each size of the micro-batch.
        """
        self._fillers = -self._rows % rows_of_all_processes

    def __len__(self) -> int:
        return self._rows + self._fillers

    def __iter__(self) -> Iterator[RowKey]:
        epoch = self._epoch
        orders = self._windows.orders(self._seed, epoch) if self._windows is not None else self._whole(epoch)
        if self._lengths is not None:
            orders = self._lengths.arranged(orders, self._seed, epoch)
        return chain(
            ((epoch, row) for order in orders for row in order.tolist()), repeat((epoch, FILLER), self._fillers)
        )

    def _whole(self, epoch: int) -> Iterator[np.ndarray]:
        """All rows in the order in which the Trainer of transformers would see them: accelerate's SeedableRandomSampler."""
        generator = torch.Generator().manual_seed(self._seed + epoch)
        yield torch.randperm(self._rows, generator=generator).numpy()


class EvaluationSampler(Sampler[RowKey]):
    """All held-out rows, the longest first, filled up to whole batches on every process.

    Without the fillers accelerate would repeat rows to make the processes even, and the mean
    would count them twice.
    """

    def __init__(self, rows: int, rows_of_all_processes: int, lengths: np.ndarray | None = None) -> None:
        """`lengths` (rows,) int; None where all are of one length: in order."""
        self._rows = rows
        self._order = np.arange(rows) if lengths is None else np.argsort(-lengths.astype(np.int64), kind="stable")
        self._length = -(-rows // rows_of_all_processes) * rows_of_all_processes

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[RowKey]:
        for row in self._order.tolist():
            yield EVALUATION_EPOCH, row
        yield from repeat((EVALUATION_EPOCH, FILLER), self._length - self._rows)


def length_order(config: RunConfig, lengths: Callable[[], np.ndarray], processes: int) -> LengthOrder | None:
    """What data.group_by_length and data.arrange_by_length ask for; None where both are off.

    `lengths` gives (n,) int: of each row that trains.
    """
    data, step = (
        config.data,
        StepShape(sequences_of_a_step(config, processes), config.batch.micro_batch_size or 1, processes),
    )
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
